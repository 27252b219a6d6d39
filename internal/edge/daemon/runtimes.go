package daemon

import (
	"errors"
	"os"
	"path/filepath"

	"brood/internal/base/id"
)

// dropRuntimes removes the runtimes of earlier broods that no checkpoint and
// no sandbox needs any more.
func (d *Daemon) dropRuntimes() error {
	if u := d.imageUsers().unknown; len(u) > 0 {
		return nil // they may need any of them
	}
	needed := map[id.Runtime]bool{d.driver.Runtime(): true}
	for _, cp := range d.cps.List() {
		needed[cp.Manifest.Runtime] = true
	}
	for _, sb := range d.host.List() {
		needed[sb.Runtime] = true
	}
	folders, err := os.ReadDir(d.home.Runtimes())
	if err != nil {
		return err
	}
	var all error
	for _, f := range folders {
		if !needed[id.Runtime(f.Name())] {
			d.log.Info("remove a runtime that nothing needs", "runtime", f.Name())
			all = errors.Join(all, os.RemoveAll(filepath.Join(d.home.Runtimes(), f.Name())))
		}
	}
	return all
}
