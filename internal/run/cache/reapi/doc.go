// Package reapi is a shared cache that speaks Bazel's Remote Execution API, so
// any server of that ecosystem will do.
//
// A result is an ActionResult as the protocol describes it: output folders as
// trees, output files and links, permissions as node properties, the output
// text as stdout, and how long the task took in the execution metadata; what
// its processes used rides as auxiliary metadata, a plain Struct. The action
// is a real one, uploaded with the result, whose salt is the task's key. Names
// that are not UTF-8, which the protocol cannot carry, are written with escapes
// and ride as node properties besides.
//
// A Cache is safe for concurrent use. It does not own its client.
package reapi
