// Command brood is what people start. It links what runs need and little else,
// and carries command brood-full for all the rest.
package main

import (
	"os"

	"brood/internal/edge/front"
)

func main() { os.Exit(front.Main(os.Args[1:])) }
