package erofs

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	superOffset = 1024
	magic       = 0xE0F5E1E2
	// The checksum is verified by gVisor and the kernel; the times are
	// modification times.
	featureChecksum = 0x1
	featureMtime    = 0x2
	blockBits       = 12
)

type superblock struct {
	meta   uint32 // block where the inodes begin
	blocks uint32
	inodes uint64
	root   uint16
	uuid   [16]byte
}

// block returns the image's first block.
func (s *superblock) block() []byte {
	block := make([]byte, BlockSize)
	b := block[superOffset:]
	le := binary.LittleEndian
	le.PutUint32(b[0:], magic)
	le.PutUint32(b[8:], featureChecksum|featureMtime)
	b[12] = blockBits
	le.PutUint16(b[14:], s.root)
	le.PutUint64(b[16:], s.inodes)
	// The build time at 24 stays zero: it would make equal images differ.
	le.PutUint32(b[36:], s.blocks)
	le.PutUint32(b[40:], s.meta)
	copy(b[48:64], s.uuid[:])
	// The format leaves out the final inversion of the usual CRC-32C.
	le.PutUint32(b[4:], ^crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return block
}
