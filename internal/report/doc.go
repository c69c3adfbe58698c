// Package report makes a report of runs of benchmarks: for each experiment what is compared,
// the verdict, the plots and the tables; as one page of HTML that needs nothing else, as
// pictures, and as text. It reads what internal/bench/record describes.
package report
