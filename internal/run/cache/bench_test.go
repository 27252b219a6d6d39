package cache_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache"
)

// BenchmarkThreeHundred saves, checks and restores 300 tasks of three files each.
func BenchmarkThreeHundred(b *testing.B) {
	w := newWorld(b)
	var tasks []*run.Task
	for i := range 300 {
		t := task(fmt.Sprintf("p%d#build", i), "dist/**")
		tasks = append(tasks, t)
		for f := range 3 {
			w.put(fmt.Sprintf("p%d/dist/lib/f%d.js", i, f), strings.Repeat(fmt.Sprintln("line", i, f), 300))
		}
	}
	all := func(b *testing.B, f func(t *run.Task) error) {
		for _, err := range life.Each(b.Context(), len(tasks), runtime.GOMAXPROCS(0), func(_ context.Context, i int) error { return f(tasks[i]) }) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	hit := func(want bool) func(t *run.Task) error {
		return func(t *run.Task) error {
			h, ok := w.c.Lookup(b.Context(), t, keyOf(string(t.ID)))
			if !ok {
				return fmt.Errorf("%s: miss", t.ID)
			}
			touched, err := h.Restore(b.Context(), func(id.Task) {})
			if err == nil && touched != want {
				return fmt.Errorf("%s: touched %v", t.ID, touched)
			}
			return err
		}
	}
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			w.open()
			all(b, func(t *run.Task) error {
				return w.c.Save(b.Context(), cache.Saving{Task: t, Key: keyOf(string(t.ID)), Log: strings.NewReader("built\n")})
			})
			w.close()
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			w.open()
			all(b, hit(false))
			w.close()
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			for i := range tasks {
				w.remove(fmt.Sprintf("p%d/dist", i))
			}
			b.StartTimer()
			w.open()
			all(b, hit(true))
			w.close()
		}
	})
}
