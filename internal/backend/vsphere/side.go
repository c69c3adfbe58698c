package vsphere

import "golang.org/x/sync/errgroup"

// side runs functions concurrently, at most most at a time, and returns the first error. The others run to their end.
func side(list []func() error, most int) error {
	var g errgroup.Group
	g.SetLimit(most)
	for _, f := range list {
		g.Go(f)
	}
	return g.Wait()
}
