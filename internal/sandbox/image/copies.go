package image

import "sync"

// copies remembers what was read of /etc, so that planning the host image
// again reads only what changed.
type copies struct {
	mu   sync.Mutex // guards seen; never held over I/O
	seen map[string]copied
}

// copied is one file of /etc and the state it was read in.
type copied struct {
	size, mtime, ctime int64
	id                 fileID
	node               *planned
}

// get returns what is known of a file in that state, nil when nothing is.
func (c *copies) get(file string, now copied) *planned {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.seen[file]
	now.node = was.node
	if was != now {
		return nil
	}
	return was.node
}

// put remembers a file. Its sum is found before others see the node.
func (c *copies) put(file string, now copied, n *planned) {
	n.hash()
	now.node = n
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[file] = now
}
