package batch

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/roster"
)

// scanLeast is the plain form of field.least.
func scanLeast(f *field, d demand, limit float64, holders []int) (*site, float64) {
	var found *site
	best := limit
	only := f.sources[d.source].Needs.Only
	for at := range f.sites {
		s := &f.sites[at]
		_, held := slices.BinarySearch(holders, at)
		switch {
		case !f.ableKinds(d.source)[s.kind], !s.fits(d), slices.Contains(d.tried, s.machine.Name),
			only != "" && only != s.machine.Name, len(holders) > 0 && !held:
			continue
		}
		if load := s.after(d.weight()); load < best || load == best && found == nil {
			found, best = s, load
		}
	}
	return found, best
}

// scanRoomiest is the plain form of field.roomiest.
func scanRoomiest(f *field, d demand) (found *site, room int) {
	only := f.sources[d.source].Needs.Only
	for at := range f.sites {
		s := &f.sites[at]
		if !f.ableKinds(d.source)[s.kind] || slices.Contains(d.tried, s.machine.Name) || only != "" && only != s.machine.Name {
			continue
		}
		if r := min(max(s.slots, 0), int(s.spare()/d.memory)); r > room {
			found, room = s, r
		}
	}
	return found, room
}

func randomMachines(r *rand.Rand, n int) []roster.Machine {
	list := make([]roster.Machine, n)
	for i := range list {
		size := 1 << r.IntN(4)
		list[i] = roster.Machine{
			Name: id.Machine(fmt.Sprintf("m%d", i)), Online: r.IntN(10) > 0, Provides: r.IntN(10) > 0,
			Cores: 2 * size, MemoryMiB: uint64(4096 * size), SandboxLimit: r.IntN(40),
			ReservedCPUs: uint64(r.IntN(2 * size)), ReservedMemoryMiB: uint64(r.IntN(4096 * size)),
			Drivers: []string{[]string{"gvisor", "qemu"}[r.IntN(2)]},
		}
		if r.IntN(3) == 0 {
			list[i].Holds = []digest.Digest{digest.Of([]byte{byte(r.IntN(3))})}
		}
	}
	if n > 0 {
		list[0].Name = id.Local
	}
	return list
}

// The tree must find exactly what looking at every machine finds.
func TestTreeFindsWhatAScanFinds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := empty()
		for i := range 3 {
			s := Source{Ref: fmt.Sprint(i), Digest: digest.Of([]byte{byte(i)})}
			switch r.IntN(4) {
			case 0:
				s.Needs.Driver = "qemu"
			case 1:
				s.Needs.Only = id.Machine(fmt.Sprintf("m%d", r.IntN(20)))
			}
			b.sources = append(b.sources, s)
		}
		list := randomMachines(r, 1+r.IntN(150))
		f := newField(b, list, weight{uint64(r.IntN(10)), uint64(r.IntN(4000))})
		for range 60 {
			d := demand{source: r.IntN(3), count: 1 + r.IntN(12), cpus: uint64(1 + r.IntN(3)), memory: uint64(1 + r.IntN(2000))}
			for range r.IntN(3) {
				d.tried = append(d.tried, list[r.IntN(len(list))].Name)
			}
			want, load := scanLeast(f, d, 1e9, nil)
			got, gotLoad := f.least(d)
			if got != want || want != nil && gotLoad != load {
				t.Fatalf("seed %d: %+v: tree %+v (%v), scan %+v (%v)", seed, d, got, gotLoad, want, load)
			}
			if held := f.held[d.source]; len(held) > 0 && want != nil {
				wantH, _ := scanLeast(f, d, load+holderBonus, held)
				if gotH, _ := f.leastHolder(d, load+holderBonus); gotH != wantH {
					t.Fatalf("seed %d: %+v: holder %+v, want %+v", seed, d, gotH, wantH)
				}
			}
			wantR, room := scanRoomiest(f, d)
			gotR, gotRoom := f.roomiest(d)
			if gotR != wantR || gotRoom != min(room, d.count) {
				t.Fatalf("seed %d: %+v: roomiest %+v (%d), scan %+v (%d)", seed, d, gotR, gotRoom, wantR, room)
			}
			if got != nil {
				f.take(got, d)
			}
		}
	}
}

// fleet is a batch of groups, ten forks each, and the machines for it.
func fleet(groups, machines int) (Params, []roster.Machine) {
	r := rand.New(rand.NewPCG(7, 7))
	p := Params{ID: "b", Now: time.Unix(0, 0), Request: Request{On: "auto"}}
	for g := range groups {
		ref := fmt.Sprintf("s%d", g%50)
		p.Request.Groups = append(p.Request.Groups, Group{Source: ref, Count: 10})
		if g < 50 {
			p.Sources = append(p.Sources, Source{Ref: ref, Digest: digest.Of([]byte(ref)), Needs: roster.Needs{Driver: "gvisor"}})
		}
	}
	list := make([]roster.Machine, machines)
	for i := range list {
		size := 1 << r.IntN(3)
		list[i] = roster.Machine{
			Name: id.Machine(fmt.Sprintf("m%d", i)), Online: true, Provides: true, Cores: 16 * size, MemoryMiB: uint64(65536 * size),
			ReservedCPUs: uint64(r.IntN(16 * size)), ReservedMemoryMiB: uint64(r.IntN(16384 * size)), Drivers: []string{"gvisor"},
		}
		for range 3 {
			list[i].Holds = append(list[i].Holds, digest.Of([]byte(fmt.Sprintf("s%d", r.IntN(60)))))
		}
	}
	return p, list
}

// placeFleet makes the batch and places all of it; only the second part is
// timed by callers that want it so.
func placeFleet(p Params, list []roster.Machine) (int, error) {
	b, err := New(p)
	if err != nil {
		return 0, err
	}
	placed := 0
	for _, e := range b.Step(p.Now, Machines{List: list}) {
		if r, ok := e.(Reserve); ok {
			placed += r.Count
		}
	}
	return placed, nil
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("forks=%d/machines=%d", 10*n, n), func(b *testing.B) {
			p, list := fleet(n, n)
			for b.Loop() {
				if placed, err := placeFleet(p, list); err != nil || placed != 10*n {
					b.Fatalf("%d placed, %v", placed, err)
				}
			}
		})
	}
}

// cpu returns the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mostGrowth is the goal (F83).
const mostGrowth = 12

// 10,000 forks in 1,000 groups over 1,000 machines take at most twelve times as
// long as a tenth of that.
// Processor time is compared, and the best of some tries counts: a busy machine
// makes the larger run look slower. Both make as much garbage, which is
// collected in between: how often the collector runs is decided by what else is
// in memory, and there is nothing else here.
func TestPlacingGrowsInLine(t *testing.T) {
	if testing.Short() || underRace {
		t.Skip("SKIPPED: it measures time")
	}
	each := func(n, runs int) time.Duration {
		p, list := fleet(n, n)
		runtime.GC()
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		began := cpu(t)
		for range runs {
			if placed, err := placeFleet(p, list); err != nil || placed != 10*n {
				t.Fatalf("%d placed, %v", placed, err)
			}
		}
		return (cpu(t) - began) / time.Duration(runs)
	}
	each(1000, 15) // from here on the memory is there
	var ratio float64
	for range 10 {
		small, large := each(100, 150), each(1000, 15)
		if ratio = float64(large) / float64(small); ratio <= mostGrowth {
			t.Logf("10 times the work: %.1f times as long (%v, %v)", ratio, small, large)
			return
		}
		t.Logf("10 times the work: %.1f times as long (%v, %v); once more", ratio, small, large)
	}
	t.Errorf("10 times the work takes %.1f times as long", ratio)
}
