package vsphere

import "sync"

// side runs functions side by side, at most most at a time, and returns the first error.
func side(list []func() error, most int) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	slots := make(chan struct{}, most)
	for _, f := range list {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			if err := f(); err != nil {
				once.Do(func() { first = err })
			}
		}()
	}
	wg.Wait()
	return first
}
