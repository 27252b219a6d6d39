package dispatch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

// sequence plays a run of misses with one place and returns the order.
func sequence(t interface{ Fatal(...any) }, p dispatch.Params) []int {
	p.Executions, p.Restores, p.Derivations, p.Continue = 1, 1, len(p.Tasks)+1, dispatch.Dependents
	m, err := dispatch.New(p)
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	var later []dispatch.Event // attempts end when every key is known
	todo := []dispatch.Event{nil}
	for len(todo)+len(later) > 0 {
		if len(todo) == 0 {
			todo, later = later, nil
		}
		e := todo[0]
		todo = todo[1:]
		for _, f := range m.Step(e) {
			switch f := f.(type) {
			case dispatch.Derive:
				todo = append(todo, dispatch.Keyed{Task: f.Task})
			case dispatch.Run:
				order = append(order, f.Task)
				later = append(later, dispatch.Ran{Task: f.Task})
			}
		}
	}
	if !m.Done() {
		t.Fatal("not done")
	}
	return order
}

func tasks(deps ...[]int) []*run.Task {
	var all []*run.Task
	for i, ds := range deps {
		t := &run.Task{ID: id.Task(fmt.Sprintf("p#%d", i)), Command: run.Command{Line: "x"}}
		t.Cache = true
		for _, d := range ds {
			t.Deps = append(t.Deps, id.Task(fmt.Sprintf("p#%d", d)))
		}
		all = append(all, t)
	}
	return all
}

func TestOrderByHistoryIsTheLongestChain(t *testing.T) {
	// 1 alone is long; 2 leads to 3; 4 has many short ones behind it.
	p := dispatch.Params{
		Tasks:    tasks(nil, nil, nil, []int{2}, nil, []int{4}, []int{4}, []int{4}),
		Expected: []time.Duration{1, 50, 10, 60, 1, 1, 1, 1},
	}
	// Task 0 begins before the others have their keys.
	if got, want := sequence(t, p), []int{0, 2, 3, 1, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestOrderWithoutHistoryIsMostDependants(t *testing.T) {
	p := dispatch.Params{Tasks: tasks(nil, nil, nil, []int{2}, nil, []int{4}, []int{4}, []int{5, 6})}
	if got, want := sequence(t, p), []int{0, 4, 2, 5, 6, 1, 3, 7}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestOrderIsGreedy holds against a plain computation of the rank: whenever a
// task begins, none that could have begun was more urgent.
func TestOrderIsGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 150).Draw(t, "n")
		deps := make([][]int, n)
		for i := 1; i < n; i++ {
			for range rapid.IntRange(0, 3).Draw(t, "k") {
				if d := rapid.IntRange(0, i-1).Draw(t, "d"); !slices.Contains(deps[i], d) {
					deps[i] = append(deps[i], d)
				}
			}
		}
		p := dispatch.Params{Tasks: tasks(deps...)}
		if rapid.Bool().Draw(t, "history") {
			for range n {
				p.Expected = append(p.Expected, time.Duration(rapid.IntRange(1, 20).Draw(t, "e")))
			}
		}
		checkGreedy(t, p, deps)
	})
}

func checkGreedy(t *rapid.T, p dispatch.Params, deps [][]int) {
	rank := plainRanks(p, deps)
	done := map[int]bool{}
	order := sequence(t, p)
	for at, i := range order {
		for j := range deps {
			free := !done[j] && j != i
			for _, d := range deps[j] {
				free = free && done[d]
			}
			// The first task begins when only its key is known.
			if free && at > 0 && rank[j] > rank[i] {
				t.Fatalf("task %d (%d) began before %d (%d)", i, rank[i], j, rank[j])
			}
		}
		done[i] = true
	}
}

func plainRanks(p dispatch.Params, deps [][]int) []int64 {
	n := len(deps)
	rank := make([]int64, n)
	behind := make([]map[int]bool, n)
	for i := n - 1; i >= 0; i-- {
		set, longest := map[int]bool{}, int64(0)
		for j := i + 1; j < n; j++ {
			if slices.Contains(deps[j], i) {
				set[j] = true
				for k := range behind[j] {
					set[k] = true
				}
				longest = max(longest, rank[j])
			}
		}
		behind[i] = set
		if rank[i] = int64(len(set)); p.Expected != nil {
			rank[i] = longest + int64(p.Expected[i])
		}
	}
	return rank
}

func TestLongChainNeedsNoStack(t *testing.T) {
	const n = 50_000
	deps := make([][]int, n)
	for i := 1; i < n; i++ {
		deps[i] = []int{i - 1}
	}
	if got := sequence(t, dispatch.Params{Tasks: tasks(deps...)}); len(got) != n {
		t.Errorf("%d ran", len(got))
	}
	p := dispatch.Params{Tasks: tasks(deps...), Executions: 1, Restores: 1, Derivations: n, Continue: dispatch.Dependents}
	m, err := dispatch.New(p)
	if err != nil {
		t.Fatal(err)
	}
	m.Step(nil)
	for i := range n {
		m.Step(dispatch.Keyed{Task: i})
	}
	if effects := m.Step(dispatch.Ran{Task: 0, Ending: dispatch.Broke}); len(effects) != n || !m.Done() {
		t.Errorf("the first fails: %d effects, done %v", len(effects), m.Done())
	}
}

func TestRefused(t *testing.T) {
	persistent := tasks(nil, []int{0})
	persistent[0].Persistent = true
	unordered := tasks([]int{1}, nil)
	for name, p := range map[string]dispatch.Params{
		"depends on a persistent task": {Tasks: persistent, Executions: 1, Restores: 1, Derivations: 1, Continue: dispatch.Never},
		"out of order":                 {Tasks: unordered, Executions: 1, Restores: 1, Derivations: 1, Continue: dispatch.Never},
		"no place":                     {Tasks: tasks(nil), Restores: 1, Derivations: 1, Continue: dispatch.Never},
		"no mode":                      {Tasks: tasks(nil), Executions: 1, Restores: 1, Derivations: 1},
	} {
		if _, err := dispatch.New(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// BenchmarkRanks is the order of 10,000 tasks in 100 layers without history.
func BenchmarkRanks(b *testing.B) {
	const n = 10_000
	deps := make([][]int, n)
	for i := 100; i < n; i++ {
		for k := range 5 {
			deps[i] = append(deps[i], (i/100-1)*100+(i*7+k*13)%100)
		}
	}
	p := dispatch.Params{Tasks: tasks(deps...), Executions: 1, Restores: 1, Derivations: n, Continue: dispatch.Never}
	for b.Loop() {
		m, err := dispatch.New(p)
		if err != nil {
			b.Fatal(err)
		}
		m.Step(nil)
		for i := range n {
			m.Step(dispatch.Keyed{Task: i})
		}
		m.Step(dispatch.Ran{Task: 0})
	}
}
