package launcher

import (
	"os"
	"sync"
)

// maxLog bounds the launcher's log file; one older file of that size is kept.
const maxLog = 1 << 20

// boundedLog appends to a file and moves it aside when it is full. It opens
// the file for each write: warnings are rare, and a launcher's descriptors are
// better spent otherwise.
type boundedLog struct {
	mu   sync.Mutex
	path string
}

// Write never fails: a log that cannot be written is dropped.
func (b *boundedLog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if st, err := os.Stat(b.path); err == nil && st.Size() > maxLog {
		_ = os.Rename(b.path, b.path+".1")
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return len(p), nil
	}
	_, _ = f.Write(p)
	_ = f.Close()
	return len(p), nil
}
