// Package filters gives gVisor the system call filter that was compiled when
// this program was built, which saves every sandbox from compiling it at its
// start (11 of some 100 ms).
//
// gVisor looks for such programs by name in a map that only its own build
// system fills. Register fills it instead. The program itself is in
// generated.go, which the build tool replaces by what package gen prints; as
// committed there is none, and gVisor compiles at start as usual.
package filters

import (
	"os"
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/runsc/boot/filter" // the package whose map is filled
)

//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

//go:linkname registerPrecompiledProgramsOnce gvisor.dev/gvisor/runsc/boot/filter.registerPrecompiledProgramsOnce
var registerPrecompiledProgramsOnce sync.Once

// Register makes the program known. It has to run before gVisor asks for one,
// in the process that the filter will be for.
func Register() {
	registerPrecompiledProgramsOnce.Do(func() {
		all := programs()
		for _, p := range all {
			for _, at := range selfPID {
				p.Bytecode32[at] = uint32(os.Getpid())
			}
		}
		precompiledPrograms = all
	})
}

// Available reports whether this build carries a program.
func Available() bool { return len(programs()) > 0 }
