package worker

import (
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// guard ends what runs when this program is killed, which cannot do it itself
// any more: tasks that go on would write below the next run. It is a shell that
// is told which process groups there are, until nobody is there to tell it.
type guard struct {
	mu      sync.Mutex // guards what follows
	in      io.WriteCloser
	process *os.Process
	none    bool // it could not be started, or has ended: there is none
}

const guardScript = `live=
while read -r what group; do
	if [ "$what" = + ]; then
		live="$live $group"
		continue
	fi
	rest=
	for g in $live; do
		[ "$g" = "$group" ] || rest="$rest $g"
	done
	live=$rest
done
for g in $live; do
	kill -s KILL -- "-$g"
done`

// begins tells that a group has members, ends that it has none any more.
func (g *guard) begins(group int) { g.tell("+ ", group) }
func (g *guard) ends(group int)   { g.tell("- ", group) }

func (g *guard) tell(what string, group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.in == nil && !g.none {
		g.none = g.start() != nil
	}
	if g.none {
		return
	}
	if _, err := io.WriteString(g.in, what+strconv.Itoa(group)+"\n"); err != nil {
		g.none = true
	}
}

// start starts the shell in a session of its own: what a terminal ends is not
// its business.
func (g *guard) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		_ = w.Close()
		return err
	}
	defer null.Close()
	g.process, err = os.StartProcess("/bin/sh", []string{"sh", "-c", guardScript}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{r, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = w.Close()
		return err
	}
	g.in = w
	return nil
}

// close lets it end. What is left of the tasks then is ended.
func (g *guard) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.none = true
	if g.in == nil {
		return nil
	}
	err := g.in.Close()
	_, _ = g.process.Wait()
	g.in = nil
	return err
}
