package forks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/edge/cli"
)

// completionLimit bounds how long a pressed Tab key waits for a daemon that
// does not answer.
const completionLimit = 5 * time.Second

// names asks the daemon for what an argument can be.
type names func(context.Context, *client.Client) ([]string, error)

type completer func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete completes the first most arguments, all when negative. Files are
// never proposed, and names that are given already are not proposed again.
func (a *app) complete(most int, ask names) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := slices.DeleteFunc(a.names(cmd.Context(), ask), func(s string) bool { return slices.Contains(args, s) })
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// names asks for names without starting a daemon or saying anything.
func (a *app) names(ctx context.Context, ask names) []string {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	h, err := a.Dir()
	if err != nil {
		return nil
	}
	c, err := client.Dial(ctx, client.Options{Home: h.Dir()})
	if err != nil {
		return nil
	}
	defer c.Close()
	all, err := ask(ctx, c)
	if err != nil {
		return nil
	}
	return all
}

// completeCopy completes NAME: for cp, and files.
func (a *app) completeCopy(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completePlace(cmd, args, toComplete, sandboxNames)
}

func (a *app) completePlace(cmd *cobra.Command, args []string, toComplete string, ask names) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.ContainsAny(toComplete, "/.:") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var all []string
	for _, name := range a.names(cmd.Context(), ask) {
		if strings.HasPrefix(name, toComplete) {
			all = append(all, name+":/")
		}
	}
	if len(all) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return all, cobra.ShellCompDirectiveNoSpace
}

// completeImages completes the image of a new sandbox, and files.
func (a *app) completeImages(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return append([]string{"host"}, a.names(cmd.Context(), imageNames)...), cobra.ShellCompDirectiveDefault
}

func sandboxNames(ctx context.Context, c *client.Client) ([]string, error) {
	r, err := c.ListSandboxes(ctx)
	var all []string
	for _, s := range r.GetSandboxes() {
		all = append(all, s.GetName())
	}
	return all, err
}

func checkpointNames(ctx context.Context, c *client.Client) ([]string, error) {
	cps, err := c.ListCheckpoints(ctx, false)
	var all []string
	for _, cp := range cps {
		all = append(all, cp.GetName())
	}
	return all, err
}

// sourceNames are what can be forked.
func sourceNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := checkpointNames(ctx, c)
	if err != nil {
		return nil, err
	}
	sandboxes, err := sandboxNames(ctx, c)
	all = append(all, sandboxes...)
	slices.Sort(all)
	return slices.Compact(all), err
}

func batchNames(ctx context.Context, c *client.Client) ([]string, error) {
	batches, err := c.ListBatches(ctx)
	var all []string
	for _, b := range batches {
		all = append(all, b.GetId())
	}
	return all, err
}

// imageRefs are names, and the digests of images without one.
func imageRefs(ctx context.Context, c *client.Client) ([]string, error) {
	images, err := c.ListImages(ctx)
	var all []string
	for _, i := range images {
		if i.GetName() != "" {
			all = append(all, i.GetName())
		} else {
			all = append(all, cli.Short(i.GetDigest()))
		}
	}
	return all, err
}

func imageNames(ctx context.Context, c *client.Client) ([]string, error) {
	images, err := c.ListImages(ctx)
	var all []string
	for _, i := range images {
		if i.GetName() != "" {
			all = append(all, i.GetName())
		}
	}
	return all, err
}
