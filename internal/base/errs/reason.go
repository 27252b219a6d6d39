package errs

import "strings"

// Keys of Meta that the protocol gives a meaning.
const (
	MetaCandidates = "candidates" // qualified names, comma-separated: the name is ambiguous
	MetaAxis       = "axis"       // on, kind, runtime or image: what does not fit
	MetaValid      = "valid"      // what would fit there
)

// reasons are the protocol's words for the codes. It has none for some of
// them; they have the nearest one.
var reasons = map[Code]string{
	InvalidArgument:    "INVALID_ARGUMENT",
	NotFound:           "NOT_FOUND",
	AlreadyExists:      "INVALID_ARGUMENT",
	FailedPrecondition: "RUNTIME",
	ResourceExhausted:  "RUNTIME",
	Unavailable:        "RUNTIME",
	Canceled:           "CANCELLED",
	DeadlineExceeded:   "TIMEOUT",
	Unauthenticated:    "UNAUTHENTICATED",
	PermissionDenied:   "UNAUTHENTICATED",
	Stale:              "RUNTIME",
	DataLoss:           "RUNTIME",
	Unsupported:        "UNSUPPORTED",
	InsufficientDisk:   "INSUFFICIENT_DISK",
	Internal:           "INTERNAL",
}

// Reason returns the protocol's word for an error with this code and these
// facts: a DaemonErrorReason without its prefix. There are finer ones for two
// kinds of bad arguments; the facts that the protocol asks for there are what
// tells them.
func Reason(code Code, meta map[string]string) string {
	if code == InvalidArgument {
		if _, ok := meta[MetaCandidates]; ok {
			return "AMBIGUOUS_SANDBOX"
		} else if _, ok := meta[MetaAxis]; ok {
			return "INVALID_PLACEMENT"
		}
	}
	if r, ok := reasons[code]; ok {
		return r
	}
	return reasons[Internal]
}

// Word returns the code as programs read it: "not_found".
func (c Code) Word() string { return strings.ReplaceAll(c.String(), " ", "_") }
