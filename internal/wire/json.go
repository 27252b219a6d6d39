package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// JSON returns m on one line as the command line shows it (F7): the field
// names of the .proto in the order of their declaration, numbers as numbers
// (64-bit ones too), zero values, empty lists and empty maps written, maps in
// the order of their keys. Left out is what says "not there": members of a
// oneof that are not set, messages that are not set, and optional fields
// without a value. Times and durations are strings as in the JSON of Protobuf,
// bytes are base64, enums are names.
func JSON(m proto.Message) ([]byte, error) {
	var w writer
	if err := w.message(m.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return w.Bytes(), nil
}

type writer struct{ bytes.Buffer }

func (w *writer) message(m protoreflect.Message) error {
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		b, err := protojson.Marshal(m.Interface())
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	w.WriteByte('{')
	first := true
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		if !first {
			w.WriteByte(',')
		}
		first = false
		if err := w.string(string(f.Name())); err != nil {
			return err
		}
		w.WriteByte(':')
		if err := w.field(f, m.Get(f)); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	w.WriteByte('}')
	return nil
}

func (w *writer) field(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.IsList():
		return w.list(f, v.List())
	case f.IsMap():
		return w.mapping(f, v.Map())
	default:
		return w.value(f, v)
	}
}

func (w *writer) list(f protoreflect.FieldDescriptor, l protoreflect.List) error {
	w.WriteByte('[')
	for i := range l.Len() {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := w.value(f, l.Get(i)); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	return nil
}

func (w *writer) mapping(f protoreflect.FieldDescriptor, m protoreflect.Map) error {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	w.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := w.string(k.String()); err != nil {
			return err
		}
		w.WriteByte(':')
		if err := w.value(f.MapValue(), m.Get(k)); err != nil {
			return err
		}
	}
	w.WriteByte('}')
	return nil
}

func (w *writer) value(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return w.message(v.Message())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return w.string(string(e.Name()))
		}
		return w.plain(int32(v.Enum())) // a newer peer's
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return w.float(f, v.Float())
	default:
		return w.plain(v.Interface())
	}
}

// float writes what JSON has no number for by its name in the JSON of Protobuf.
func (w *writer) float(f protoreflect.FieldDescriptor, x float64) error {
	switch {
	case math.IsNaN(x):
		return w.string("NaN")
	case math.IsInf(x, 1):
		return w.string("Infinity")
	case math.IsInf(x, -1):
		return w.string("-Infinity")
	case f.Kind() == protoreflect.FloatKind:
		return w.plain(float32(x))
	}
	return w.plain(x)
}

func (w *writer) string(s string) error { return w.plain(s) }

// plain writes a Go value: a number, a bool, a string, or bytes as base64.
func (w *writer) plain(v any) error {
	e := json.NewEncoder(&w.Buffer)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	w.Truncate(w.Len() - 1) // the encoder's line end
	return nil
}
