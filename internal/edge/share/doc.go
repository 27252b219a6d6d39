// Package share has what runs need to share results with others: the clients
// of shared caches, and "brood cache serve".
package share
