package roster

import (
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// minKeyPrefix keeps a short machine name from being taken for a key.
const minKeyPrefix = 6

// List is a snapshot of machines.
type List []Machine

// Find returns the one machine that a person means: by its name, else by a
// prefix of its key. NotFound names what there is, InvalidArgument all that
// fit, Unavailable says that it is offline.
func (l List) Find(want string) (*Machine, error) {
	var found []*Machine
	for i := range l {
		if string(l[i].Name) == want {
			found = []*Machine{&l[i]}
			break
		}
		if len(want) >= minKeyPrefix && strings.HasPrefix(l[i].Key, want) {
			found = append(found, &l[i])
		}
	}
	switch {
	case len(found) == 0:
		return nil, errs.New(errs.NotFound, "no machine %q: there is %s", want, names(l))
	case len(found) > 1:
		return nil, errs.New(errs.InvalidArgument, "%q fits the keys of %d machines: give more of the key, or a name", want, len(found))
	case !found[0].Online:
		return nil, errs.New(errs.Unavailable, "machine %s is offline: start its daemon, or choose another with --on", found[0].Name)
	}
	return found[0], nil
}

func names(l List) string {
	all := make([]string, 0, len(l))
	for _, m := range l {
		all = append(all, string(m.Name))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "only " + string(id.Local)
	}
	const shown = 10
	if len(all) > shown {
		all = append(all[:shown], "…")
	}
	return strings.Join(all, ", ")
}
