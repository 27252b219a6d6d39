package turbo_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAgreesOnManyPackages compares a thousand packages in a hundred layers,
// each of which needs three of the layer below: three thousand tasks.
func TestAgreesOnManyPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes a while")
	}
	const packages, layers = 1000, 100
	const width = packages / layers
	files := map[string]string{
		"package.json": `{"name":"root","workspaces":["packages/*"]}`,
		"turbo.json":   `{"tasks":{"build":{"dependsOn":["^build"],"outputs":["dist/**"]},"test":{"dependsOn":["build"]},"lint":{}}}`,
	}
	for i := range packages {
		deps := map[string]bool{}
		if i >= width {
			below := (i/width - 1) * width
			for k := range 3 {
				deps[fmt.Sprintf(`"p%d":"*"`, below+(i*3+k*7)%width)] = true
			}
		}
		var list []string
		for d := range deps {
			list = append(list, d)
		}
		files[fmt.Sprintf("packages/p%d/package.json", i)] = fmt.Sprintf(
			`{"name":"p%d","version":"1.0.0","scripts":{"build":"b","test":"t","lint":"l"},"dependencies":{%s}}`, i, strings.Join(list, ","))
	}
	r := newRepository(t, "npm", files)
	r.agree(t, []string{"build", "test", "lint"})
	r.agree(t, []string{"test", "-F", "p500..."})
	r.agree(t, []string{"build", "-F", "...p500", "--only"})
}
