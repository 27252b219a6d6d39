package workspace

import "strings"

// framework is a tool whose builds read variables by a naming rule of its own.
type framework struct {
	name string
	// env are the variables; * stands for any rest.
	env []string
	// any of these dependencies gives it away, or all of them.
	needs []string
	all   bool
	// when the variable has the value, also is read too.
	when, value, also string
}

// The order counts: the first that fits is taken, as turbo does.
var nitroHosts = []string{
	"NITRO_*", "SERVER_*", "AWS_APP_ID", "INPUT_AZURE_STATIC_WEB_APPS_API_TOKEN", "CLEAVR", "CF_PAGES",
	"FIREBASE_APP_HOSTING", "NETLIFY", "STORMKIT", "NOW_BUILDER", "ZEABUR", "RENDER",
}

var frameworks = []framework{
	{name: "astro", env: []string{"PUBLIC_*"}, needs: []string{"astro"}},
	{name: "blitzjs", env: []string{"NEXT_PUBLIC_*"}, needs: []string{"blitz"}},
	{name: "create-react-app", env: []string{"REACT_APP_*"}, needs: []string{"react-scripts", "react-dev-utils"}},
	{name: "expo", env: []string{"EXPO_PUBLIC_*"}, needs: []string{"expo"}},
	{name: "gatsby", env: []string{"GATSBY_*"}, needs: []string{"gatsby"}},
	{name: "nextjs", env: []string{"NEXT_PUBLIC_*"}, needs: []string{"next"},
		when: "VERCEL_SKEW_PROTECTION_ENABLED", value: "1", also: "VERCEL_DEPLOYMENT_ID"},
	{name: "nitro", env: nitroHosts, needs: []string{"nitropack", "nitropack-nightly", "nitro", "nitro-nightly"}},
	{name: "nuxtjs", env: append([]string{"NUXT_*", "NUXT_ENV_*", "LAUNCH_EDITOR"}, nitroHosts...),
		needs: []string{"nuxt", "nuxt-edge", "nuxt3", "nuxt3-edge"}},
	{name: "redwoodjs", env: []string{"REDWOOD_ENV_*"}, needs: []string{"@redwoodjs/core"}},
	{name: "remix", env: []string{"REMIX_*"}, needs: []string{"@remix-run/dev", "@remix-run/react", "@remix-run/serve"}},
	{name: "sanity", env: []string{"SANITY_STUDIO_*"}, needs: []string{"@sanity/cli"}},
	{name: "solidstart", env: []string{"VITE_*"}, needs: []string{"solid-js", "solid-start"}, all: true},
	{name: "sveltekit", env: []string{"VITE_*", "PUBLIC_*"}, needs: []string{"@sveltejs/kit"}},
	{name: "vite", env: []string{"VITE_*"}, needs: []string{"vite"}},
	{name: "vue", env: []string{"VUE_APP_*", "LAUNCH_EDITOR"}, needs: []string{"@vue/cli-service"}},
}

// frameworkOf names the framework that a package with these dependencies uses.
func frameworkOf(deps map[string]string) string {
	for _, f := range frameworks {
		if f.fits(deps) {
			return f.name
		}
	}
	return ""
}

func (f framework) fits(deps map[string]string) bool {
	for _, need := range f.needs {
		if _, ok := deps[need]; ok != f.all {
			return ok
		}
	}
	return f.all
}

// InferredEnv returns the names of the variables, with wildcards, that the
// project's framework reads, given the environment of the run. Names that
// TURBO_CI_VENDOR_ENV_KEY begins are taken back: a CI's own.
func (p *Project) InferredEnv(environ []string) []string {
	if p.Framework == "" {
		return nil
	}
	var names []string
	for _, f := range frameworks {
		if f.name != p.Framework {
			continue
		}
		names = append(names, f.env...)
		if f.when != "" && lookup(environ, f.when) == f.value {
			names = append(names, f.also)
		}
	}
	if vendor := lookup(environ, "TURBO_CI_VENDOR_ENV_KEY"); vendor != "" {
		names = append(names, "!"+vendor+"*")
	}
	return names
}

// lookup returns the last value of a variable, as a shell would see it.
func lookup(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}
