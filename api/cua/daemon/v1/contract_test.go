package daemonv1_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "brood/api/cua/daemon/v1"
)

const pkg = "cua.daemon.v1"

// TestDescriptorsAreTheContract holds what was compiled against the table
// typed by hand, in both directions.
func TestDescriptorsAreTheContract(t *testing.T) {
	b, err := os.ReadFile("testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, got := blocks(string(b)), compiled()
	if len(want) < 50 {
		t.Fatalf("only %d blocks in the table: it was not read right", len(want))
	}
	for head, lines := range want {
		have, ok := got[head]
		if !ok {
			t.Errorf("%s is missing", head)
			continue
		}
		for _, l := range lines {
			if !slices.Contains(have, l) {
				t.Errorf("%s: the contract has %q, compiled is none like it among %q", head, l, have)
			}
		}
		for _, l := range have {
			if !slices.Contains(lines, l) {
				t.Errorf("%s: compiled is %q, which the contract does not have", head, l)
			}
		}
	}
	for head := range got {
		if _, ok := want[head]; !ok {
			t.Errorf("%s is not in the contract", head)
		}
	}
}

// blocks reads the table: a head at the margin, its lines indented.
func blocks(text string) map[string][]string {
	all := map[string][]string{}
	head := ""
	for line := range strings.Lines(text) {
		body := strings.TrimSpace(line)
		switch {
		case body == "" || strings.HasPrefix(body, "#"):
		case line[0] != ' ':
			head = body
			all[head] = nil
		default:
			all[head] = append(all[head], body)
		}
	}
	return all
}

// compiled writes the descriptors in the table's form.
func compiled() map[string][]string {
	all := map[string][]string{}
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			head := "service " + string(s.Name())
			for j := range s.Methods().Len() {
				all[head] = append(all[head], method(s.Methods().Get(j)))
			}
		}
		for i := range f.Enums().Len() {
			e := f.Enums().Get(i)
			head := "enum " + string(e.Name())
			for j := range e.Values().Len() {
				v := e.Values().Get(j)
				all[head] = append(all[head], fmt.Sprintf("%d %s", v.Number(), v.Name()))
			}
		}
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			all["message "+string(m.Name())] = message(m)
		}
		return true
	})
	return all
}

func method(m protoreflect.MethodDescriptor) string {
	stream := func(yes bool) string {
		if yes {
			return "stream "
		}
		return ""
	}
	return fmt.Sprintf("%s %s%s -> %s%s", m.Name(), stream(m.IsStreamingClient()), short(m.Input().FullName()), stream(m.IsStreamingServer()), short(m.Output().FullName()))
}

func message(m protoreflect.MessageDescriptor) []string {
	var lines []string
	for i := range m.ReservedRanges().Len() {
		r := m.ReservedRanges().Get(i)
		for n := r[0]; n < r[1]; n++ {
			lines = append(lines, fmt.Sprintf("reserved %d", n))
		}
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		line := fmt.Sprintf("%d %s %s", f.Number(), f.Name(), fieldType(f))
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			line += " in " + string(o.Name())
		}
		lines = append(lines, line)
	}
	for i := range m.Messages().Len() {
		if inner := m.Messages().Get(i); !inner.IsMapEntry() {
			lines = append(lines, "message "+string(inner.Name()))
		}
	}
	return lines
}

func fieldType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s,%s>", f.MapKey().Kind(), fieldType(f.MapValue()))
	case f.IsList():
		return "repeated " + base(f)
	case f.HasOptionalKeyword():
		return "optional " + base(f)
	}
	return base(f)
}

func base(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return short(f.Message().FullName())
	case f.Enum() != nil:
		return short(f.Enum().FullName())
	}
	return f.Kind().String()
}

func short(n protoreflect.FullName) string { return strings.TrimPrefix(string(n), pkg+".") }
