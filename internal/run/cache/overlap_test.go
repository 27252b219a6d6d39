package cache_test

import (
	"fmt"
	"testing"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache"
)

func TestOverlaps(t *testing.T) {
	with := func(t *run.Task, deps ...id.Task) *run.Task { t.Deps = deps; return t }
	tasks := []*run.Task{
		task("a#gen", "dist/gen/**"),
		task("a#mid"),
		with(task("a#build", "dist/**"), "a#mid", "a#gen"),
		with(task("a#types", "dist/types/**"), "a#build"),
		task("a#docs", "dist/docs/*.html"),
		task("b#build", "dist/**"),
		task("b#cover", "coverage/**"),
		with(task("a#late", "dist/gen/x.js"), "a#types"),
		task("c#next", ".next/**", "!.next/cache/**"),
		task("c#cache", ".next/cache/**"),
		task("//#all", "/a/**"),
	}
	tasks[1].Cache = false
	got, err := cache.Overlaps(tasks)
	if err != nil {
		t.Fatal(err)
	}
	want := []cache.Overlap{
		{First: "a#gen", Second: "a#build", Edge: true},
		{First: "a#build", Second: "a#types", Edge: true},
		{First: "a#build", Second: "a#docs"},
		{First: "a#gen", Second: "a#late", Edge: true},
		{First: "a#build", Second: "a#late", Edge: true},
		{First: "a#gen", Second: "//#all"}, {First: "a#build", Second: "//#all"}, {First: "a#types", Second: "//#all"},
		{First: "a#docs", Second: "//#all"}, {First: "a#late", Second: "//#all"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("overlaps\n%v\nwant\n%v", got, want)
	}
}

// Thousands of tasks with one and the same folder are found out without
// comparing each with each: this test would take minutes.
func TestManyOverlaps(t *testing.T) {
	var tasks []*run.Task
	for i := range 20_000 {
		x := task(fmt.Sprintf("a#t%d", i), "dist/**", fmt.Sprintf("out%d/**", i))
		if i > 0 {
			x.Deps = []id.Task{tasks[i-1].ID}
		}
		tasks = append(tasks, x)
	}
	got, err := cache.Overlaps(tasks)
	if err != nil || len(got) < 20_000-1 {
		t.Errorf("%d overlaps, %v", len(got), err)
	}
}
