//go:build linux

package pid1

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"brood/internal/base/errs"
)

// account is whom a program runs as.
type account struct {
	name string
	home string
	cred *syscall.Credential // nil: as the server itself
}

// nobody is the user and group of a damaged line.
const nobody = 65534

// entry is a line of /etc/passwd or /etc/group, cut at its colons.
type entry []string

// account resolves "name", "uid", "name:group" or "uid:gid" in the sandbox's
// own files; an empty string is the server's own user.
func (s *Server) account(spec string) (account, error) {
	user, group, grouped := strings.Cut(spec, ":")
	passwd := s.database("etc/passwd", 7)
	if spec == "" {
		own := account{name: "root", home: "/root"}
		if uid := os.Getuid(); uid != 0 {
			own = account{home: "/"}
			if e := find(passwd, strconv.Itoa(uid), 2); e != nil {
				own = account{name: e[0], home: e[5]}
			}
		} else if e := find(passwd, "0", 2); e != nil {
			own = account{name: e[0], home: e[5]}
		}
		return own, nil
	}
	a := account{home: "/"}
	var uid, gid uint32
	if e := find(passwd, user, 0); e != nil {
		a.name, a.home = e[0], e[5]
		uid, gid = number(e[2]), number(e[3])
	} else if n, ok := parseID(user); ok {
		uid = n
		if e := find(passwd, user, 2); e != nil {
			a.name, a.home, gid = e[0], e[5], number(e[3])
		}
	} else {
		return account{}, errs.New(errs.NotFound, "user %.200q is not in the sandbox's /etc/passwd: use one that is, or a number", user)
	}
	groups := s.database("etc/group", 4)
	if grouped {
		if e := find(groups, group, 0); e != nil {
			gid = number(e[2])
		} else if n, ok := parseID(group); ok {
			gid = n
		} else {
			return account{}, errs.New(errs.NotFound, "group %.200q is not in the sandbox's /etc/group: use one that is, or a number", group)
		}
	}
	a.cred = &syscall.Credential{Uid: uid, Gid: gid, Groups: members(groups, a.name)}
	return a, nil
}

// members returns the groups that list a user.
func members(groups []entry, name string) []uint32 {
	var ids []uint32
	for _, e := range groups {
		if name != "" && slices.Contains(strings.Split(e[3], ","), name) {
			ids = append(ids, number(e[2]))
		}
	}
	return ids
}

// database reads a file of colon-separated lines; a missing one is empty.
func (s *Server) database(name string, fields int) []entry {
	f, err := os.Open(filepath.Join(s.cfg.Root, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	var all []entry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if e := entry(strings.Split(lines.Text(), ":")); len(e) >= fields {
			all = append(all, e)
		}
	}
	return all
}

func find(all []entry, key string, field int) entry {
	for _, e := range all {
		if e[field] == key {
			return e
		}
	}
	return nil
}

func parseID(s string) (uint32, bool) {
	// The highest value means "no change" to the kernel.
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != math.MaxUint32
}

func number(s string) uint32 {
	n, ok := parseID(s)
	if !ok {
		return nobody // a damaged line must not make anyone root
	}
	return n
}
