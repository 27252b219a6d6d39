package errs

// Code is the kind of a failure.
type Code int

// The codes. The zero value is no code: it means success in CodeOf(nil) and
// is never carried by an error.
const (
	OK                 Code = iota
	InvalidArgument         // the request can never work as it is
	NotFound                // what it names does not exist
	AlreadyExists           // the name is taken
	FailedPrecondition      // right request, wrong state
	ResourceExhausted       // a limit is reached
	Unavailable             // nobody answers now; trying again may help
	Canceled                // the caller went away or interrupted
	DeadlineExceeded        // it took longer than allowed
	Unauthenticated         // who you are is not proven
	PermissionDenied        // you may not
	Stale                   // an answer to a grant that is no longer valid
	DataLoss                // bytes are missing or wrong
	Unsupported             // brood, or this machine, cannot do that
	InsufficientDisk        // not enough disk for the request
	Internal                // a defect of brood
	end
)

// Codes returns every code that an error can carry.
func Codes() []Code {
	all := make([]Code, 0, end-1)
	for c := InvalidArgument; c < end; c++ {
		all = append(all, c)
	}
	return all
}

var names = map[Code]string{
	OK:                 "ok",
	InvalidArgument:    "invalid argument",
	NotFound:           "not found",
	AlreadyExists:      "already exists",
	FailedPrecondition: "failed precondition",
	ResourceExhausted:  "resource exhausted",
	Unavailable:        "unavailable",
	Canceled:           "canceled",
	DeadlineExceeded:   "deadline exceeded",
	Unauthenticated:    "unauthenticated",
	PermissionDenied:   "permission denied",
	Stale:              "stale",
	DataLoss:           "data loss",
	Unsupported:        "unsupported",
	InsufficientDisk:   "insufficient disk",
	Internal:           "internal",
}

// String returns the code's words, as used in logs.
func (c Code) String() string {
	if s, ok := names[c]; ok {
		return s
	}
	return "unknown code"
}

// Exit codes of the brood command. They are the ones of the protocol's own
// command line, so that scripts written for it keep working.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitBadArgument = 2
	ExitNotFound    = 3
	ExitUnsupported = 4
	ExitTransport   = 5
	ExitNotAllowed  = 6
	ExitNoDisk      = 7
	ExitInterrupted = 130
)

var exits = map[Code]int{
	OK:                 ExitOK,
	InvalidArgument:    ExitBadArgument,
	NotFound:           ExitNotFound,
	AlreadyExists:      ExitFailure,
	FailedPrecondition: ExitFailure,
	ResourceExhausted:  ExitFailure,
	Unavailable:        ExitTransport,
	Canceled:           ExitInterrupted,
	DeadlineExceeded:   ExitFailure,
	Unauthenticated:    ExitNotAllowed,
	PermissionDenied:   ExitNotAllowed,
	Stale:              ExitFailure,
	DataLoss:           ExitFailure,
	Unsupported:        ExitUnsupported,
	InsufficientDisk:   ExitNoDisk,
	Internal:           ExitFailure,
}

// ExitCode returns the exit code of the command line for c.
func (c Code) ExitCode() int {
	if e, ok := exits[c]; ok {
		return e
	}
	return ExitFailure
}
