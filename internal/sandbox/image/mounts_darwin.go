package image

// mountsBelow: nothing is mounted into images where no sandbox runs.
func mountsBelow(string) ([]string, error) { return nil, nil }
