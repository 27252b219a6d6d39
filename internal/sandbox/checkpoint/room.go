package checkpoint

import "brood/internal/home"

// Room answers InsufficientDisk when a capture of need bytes into dir would
// leave fewer than minFree bytes free: to be asked before the source is
// paused (F26). A minFree of 0 stands for the larger of 5 GB and 5 % of the
// filesystem. The fact missing_bytes says how many to free.
func Room(dir string, need, minFree uint64) error { return home.Room(dir, need, minFree) }
