package test

import (
	"testing"
)

func TestForkGoesOnFromTheSameState(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	src := w.run(w.container("src", root))
	before := src.count()
	if got := src.ask("write /usr/note from-source"); got != "ok" {
		t.Fatalf("write over a host folder: %s", got)
	}
	image := w.checkpoint("src")
	after := src.count()

	for _, id := range []string{"fork-a", "fork-b", "fork-c"} {
		g := w.restore(w.container(id, root), image)
		if n := g.count(); n < before {
			t.Errorf("%s counts %d, the source had %d", id, n, before)
		}
		if got := g.ask("read /usr/note"); got != "from-source" {
			t.Errorf("%s reads %q", id, got)
		}
		if got := g.ask("write /usr/note " + id); got != "ok" {
			t.Errorf("%s: write: %s", id, got)
		}
		if got := g.ask("hostname " + id); got != id {
			t.Errorf("%s is named %q", id, got)
		}
		g.ask("say hello-from-" + id)
	}
	if n := src.count(); n <= after {
		t.Errorf("the source stopped at %d", n)
	}
	if got := src.ask("read /usr/note"); got != "from-source" {
		t.Errorf("the source reads %q", got)
	}
}
