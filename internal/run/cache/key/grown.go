package key

import (
	"sync"
	"time"

	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
)

// grown looks for files that would enter every key and are not in the snapshot.
// Every task asks, and the globs may reach the whole workspace: so who asks
// while somebody looks takes the next look's answer, with the others that do.
type grown struct {
	files    *files.Snapshot
	deps     *glob.Set
	projects []string
	known    map[string]bool // the files that were there

	mu    sync.Mutex
	began time.Time     // of the last look
	cost  time.Duration // of the last look
	name  string
}

// since returns such a file that is there at a time, unless to look costs more
// than most; made tells those that do not count.
func (g *grown) since(when time.Time, most time.Duration, made func(string) bool) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.Before(when) {
		if g.cost > most {
			return "", nil
		}
		g.began = time.Now()
		name, err := g.look(func(string) bool { return false })
		g.cost = time.Since(g.began)
		if err != nil {
			g.began = time.Time{}
			return "", err
		}
		g.name = name
	}
	if g.name != "" && made(g.name) { // there may be others
		return g.look(made)
	}
	return g.name, nil
}

func (g *grown) look(made func(string) bool) (string, error) {
	skip := func(name string, folder bool) bool {
		if folder {
			return !g.deps.Reaches(name)
		}
		return made(name) || g.known[name] || !g.deps.Match(name)
	}
	named, _ := g.deps.Named()
	for _, base := range g.deps.Bases() {
		if g.files.BeyondLink(base) {
			continue // what was there is among the inputs
		}
		if name, err := g.files.Appeared(files.Search{Dir: base, Skip: skip, Named: named}); name != "" || err != nil {
			return name, err
		}
	}
	for _, dir := range g.projects {
		if name, err := g.files.Appeared(files.Search{Dir: dir, Skip: func(name string, _ bool) bool { return made(name) }}); name != "" || err != nil {
			return name, err
		}
	}
	return "", nil
}
