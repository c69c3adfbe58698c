// Package report makes reports of benchmark runs: for each experiment the comparison, the verdict, the plots and the
// tables, as a single self-contained HTML page, as pictures, and as text. It reads the format of
// internal/bench/record.
package report
