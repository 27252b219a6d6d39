package batch

import (
	"strconv"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// Limits and defaults of a request (F40, F44, F45).
const (
	MaxForks           = 10_000
	DefaultMaxParallel = 4
	DefaultCPUs        = 1
	DefaultMemoryMiB   = 2048

	// maxMemoryMiB keeps sums of counted memory far from overflow; it is
	// more than any machine has (4 PiB).
	maxMemoryMiB = 1 << 32
)

// Request is what a caller asks for. Field names are the protocol's.
type Request struct {
	Source             string    `json:"source,omitempty"`
	Count              uint32    `json:"count,omitempty"`
	GroupSize          uint32    `json:"group_size,omitempty"`
	Groups             []Group   `json:"groups,omitempty"`
	On                 string    `json:"on,omitempty"`
	MaxParallelPerHost uint32    `json:"max_parallel_per_host,omitempty"`
	CPUs               uint32    `json:"cpus,omitempty"`
	MemoryMiB          uint64    `json:"memory_mb,omitempty"`
	NamePrefix         string    `json:"name_prefix,omitempty"`
	Fallback           *Fallback `json:"fallback,omitempty"`
	Retries            uint32    `json:"retries,omitempty"`
	NoRetry            bool      `json:"no_retry,omitempty"`
}

// Group is the forks of one checkpoint that go to one machine together.
type Group struct {
	Source     string `json:"source"`
	Count      uint32 `json:"count"`
	NamePrefix string `json:"name_prefix,omitempty"`
}

// Fallback is where a machine fetches a checkpoint that it cannot get from
// another machine. It is only checked here; the transfer uses it.
type Fallback struct {
	S3Bucket   string `json:"s3_bucket,omitempty"`
	S3Prefix   string `json:"s3_prefix,omitempty"`
	S3Region   string `json:"s3_region,omitempty"`
	S3Endpoint string `json:"s3_endpoint,omitempty"`
	Dir        string `json:"dir,omitempty"`
}

// Where is the parsed form of a request's On.
type Where struct {
	Auto bool
	// Host is the machine as the caller named it (name or key prefix); empty
	// for this machine.
	Host string
}

// ParseOn reads a request's On.
func ParseOn(on string) (Where, error) {
	host, isHost := strings.CutPrefix(on, "host:")
	switch {
	case on == "" || on == "local" || on == "host:local":
		return Where{}, nil
	case on == "auto":
		return Where{Auto: true}, nil
	case !isHost:
		return Where{}, errs.New(errs.InvalidArgument, "on = %.80q: use local, auto or host:<machine>", on)
	case host == "":
		return Where{}, errs.New(errs.InvalidArgument, "on = %q names no machine: use host:<machine>", on)
	}
	// A key's prefix obeys the rule for names too, except that a whole key
	// may be one character longer than a name.
	if _, err := digest.Parse(host); err == nil {
		return Where{Host: host}, nil
	}
	if _, err := id.ParseName("machine", host); err != nil {
		return Where{}, err
	}
	return Where{Host: host}, nil
}

// SourceKind says how a source is to be looked up.
type SourceKind int

// The kinds of a source: whatever has the name, or one kind alone.
const (
	AnySource SourceKind = iota
	CheckpointSource
	SandboxSource
)

// ParseSource splits a source into its kind and its name. The name may be the
// digest of a checkpoint.
func ParseSource(ref string) (SourceKind, string, error) {
	kind, name := AnySource, ref
	if rest, ok := strings.CutPrefix(ref, "checkpoint:"); ok {
		kind, name = CheckpointSource, rest
	} else if rest, ok := strings.CutPrefix(ref, "sandbox:"); ok {
		kind, name = SandboxSource, rest
	}
	if _, err := digest.Parse(name); err == nil && kind != SandboxSource {
		return kind, name, nil
	}
	if _, err := id.ParseName("source", name); err != nil {
		return 0, "", err
	}
	return kind, name, nil
}

// Validate refuses what can be refused without knowing sources or machines
// (F40, F41, F11). The error is InvalidArgument and says what to change.
func Validate(r Request) error {
	if err := validateShape(r); err != nil {
		return err
	}
	if _, err := ParseOn(r.On); err != nil {
		return err
	}
	if r.MemoryMiB > maxMemoryMiB {
		return errs.New(errs.InvalidArgument, "memory_mb is %d MiB for each fork: no machine has that much, give at most %d", r.MemoryMiB, uint64(maxMemoryMiB))
	}
	if err := validateFallback(r.Fallback); err != nil {
		return err
	}
	return validateNames(expand(r))
}

func validateShape(r Request) error {
	switch {
	case r.Source == "" && len(r.Groups) == 0:
		return errs.New(errs.InvalidArgument, "nothing to fork: give source and count, or groups")
	case r.Source != "" && len(r.Groups) > 0:
		return errs.New(errs.InvalidArgument, "both source and groups are given: use one of them")
	case len(r.Groups) > 0 && r.Count != 0:
		return errs.New(errs.InvalidArgument, "count = %d beside groups: each group has its own count, leave this one out", r.Count)
	case len(r.Groups) > 0 && r.GroupSize != 0:
		return errs.New(errs.InvalidArgument, "group_size = %d beside groups: it cuts one source into groups, leave it out", r.GroupSize)
	case len(r.Groups) == 0 && r.Count == 0:
		return errs.New(errs.InvalidArgument, "count is 0: give at least 1")
	}
	total := uint64(r.Count)
	if _, _, err := ParseSource(r.Source); r.Source != "" && err != nil {
		return err
	}
	for i, g := range r.Groups {
		if g.Count == 0 {
			return errs.New(errs.InvalidArgument, "group %d (%.80q): count is 0: give at least 1", i, g.Source)
		}
		if _, _, err := ParseSource(g.Source); err != nil {
			return errs.New(errs.InvalidArgument, "group %d: %w", i, err)
		}
		total += uint64(g.Count)
	}
	if total > MaxForks {
		return errs.New(errs.InvalidArgument, "%d forks in one batch: at most %d, make several batches", total, MaxForks)
	}
	return nil
}

func validateFallback(f *Fallback) error {
	switch {
	case f == nil:
		return nil
	case f.S3Bucket == "" && f.Dir == "":
		return errs.New(errs.InvalidArgument, "the fallback names no place: give s3_bucket or dir")
	case f.S3Bucket != "" && f.Dir != "":
		return errs.New(errs.InvalidArgument, "the fallback has both s3_bucket and dir: give one of them")
	}
	return nil
}

func validateNames(groups []Group) error {
	per := map[string]int{}
	for _, g := range groups {
		if g.NamePrefix != "" {
			per[g.NamePrefix] += int(g.Count)
		}
	}
	for i, g := range groups {
		count, ok := per[g.NamePrefix]
		if !ok {
			continue
		}
		delete(per, g.NamePrefix) // one check for all groups that share it
		last := g.NamePrefix + "-" + strconv.Itoa(count-1)
		if _, err := id.ParseName("fork", last); err != nil {
			return errs.New(errs.InvalidArgument, "name prefix %.80q of group %d makes no valid names (the last would be %.100q): use at most %d of a-z, 0-9 and '-', beginning with a letter or digit",
				g.NamePrefix, i, last, id.MaxName-len(last)+len(g.NamePrefix))
		}
	}
	return nil
}

// expand returns the groups of a request, each with its prefix if it has one.
func expand(r Request) []Group {
	if len(r.Groups) == 0 {
		return cut(r)
	}
	groups := make([]Group, len(r.Groups))
	for i, g := range r.Groups {
		if g.NamePrefix == "" {
			g.NamePrefix = r.NamePrefix
		}
		groups[i] = g
	}
	return groups
}

func cut(r Request) []Group {
	size := r.GroupSize
	if size == 0 || size > r.Count {
		size = r.Count
	}
	var groups []Group
	for left := r.Count; left > 0; left -= min(size, left) {
		groups = append(groups, Group{Source: r.Source, Count: min(size, left), NamePrefix: r.NamePrefix})
	}
	return groups
}
