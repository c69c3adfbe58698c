package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// Exit statuses of nearmetal itself. Commands that run a program exit with that program's status, which is often 1 or
// 2. A failure of nearmetal has 125 so that scripts can distinguish the two, as in podman.
const (
	exitUsage    = 2   // the command line is wrong
	exitFindings = 3   // the command succeeded, and its check found a fault
	exitFailure  = 125 // nearmetal itself failed
)

// ExitError ends nearmetal with the status of the program that it ran. Err is shown before, unless it is nil.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// exitStatus returns the error for a program that ended with this status, nil for 0.
func exitStatus(code int) error {
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code}
}

// findings returns the error of a command whose check found something wrong: status 3. err is shown before, unless it is nil.
func findings(err error) error { return &ExitError{Code: exitFindings, Err: err} }

// exitSignal returns the error for a program that a signal ended: status 128 + its number, as shells do.
func exitSignal(s syscall.Signal) error { return &ExitError{Code: 128 + int(s)} }

// usageError is an invalid command line: status 2.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// usagef returns a usage error.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// mustBeRoot returns the error of a command that only root can run; how is its command line after nearmetal.
func mustBeRoot(how string) error { return fmt.Errorf("must be root: sudo nearmetal %s", how) }

// runError is an error of a command that had begun, in contrast to cobra's errors, which all concern usage.
type runError struct{ error }

func (e *runError) Unwrap() error { return e.error }

// report shows err, the error of the command ran, and returns the status to exit with.
func report(stderr io.Writer, ran *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	var write *os.PathError
	if errors.As(err, &write) && write.Path == os.Stdout.Name() && write.Err == syscall.EPIPE {
		return 128 + int(syscall.SIGPIPE) // the reader has closed the pipe (nearmetal … | head): no error
	}
	status := exitFailure
	var begun *runError
	var usage *usageError
	var exit *ExitError
	switch {
	case errors.As(err, &exit):
		if exit.Err == nil {
			return exit.Code
		}
		status = exit.Code
	case errors.As(err, &usage):
		status = exitUsage
	case !errors.As(err, &begun):
		status = exitUsage
	}
	lines := terminal.ErrorLines(err)
	if status == exitUsage && exit == nil {
		lines[len(lines)-1] += " (see " + ran.CommandPath() + " --help)"
	}
	for _, line := range lines {
		fmt.Fprintf(stderr, "nearmetal: %s\n", terminal.Bounded(text.Clean(plainly(line+otherHome(line)))))
	}
	return status
}

// otherHome returns advice for a line about a file in $HOME that may not be read, if $HOME is the home of another user,
// as sudo and su leave it; otherwise "".
func otherHome(line string) string {
	home := os.Getenv("HOME")
	if !strings.Contains(line, home+"/") || !strings.Contains(line, syscall.EACCES.Error()) && !strings.Contains(line, " belongs to user ") {
		return ""
	}
	var st syscall.Stat_t
	if err := syscall.Stat(home, &st); err != nil || int(st.Uid) == os.Geteuid() {
		return ""
	}
	return fmt.Sprintf(" (HOME=%s is the home of user %d: sudo -H sets yours)", home, st.Uid)
}

// rawWords are error texts of system calls and of Go libraries, each with a plain text for the user.
var rawWords = []struct {
	form func() *regexp.Regexp
	text string
}{
	{lazyregexp.New(`(^|: |[(])(?:open|openat|stat|lstat|read|readlink|mkdir|mkdirat|chdir|readdirent|fdopendir|fork/exec) ([^:\n]+: ` +
		`(?:no such file or directory|is a directory|not a directory|permission denied|too many levels of symbolic links|file name too long))`), "$1$2"},
	{lazyregexp.New(`context deadline exceeded`), "it took too long"},
	{lazyregexp.New(`context canceled`), "it was interrupted"},
	{lazyregexp.New(`bufio\.Scanner: token too long`), "a line is too long"},
	{lazyregexp.New(`strconv\.\w+: parsing ("[^"\n]*"): invalid syntax`), "$1 is not a number"},
	{lazyregexp.New(`strconv\.\w+: parsing ("[^"\n]*"): value out of range`), "$1 is too large or too small"},
	{lazyregexp.New(`archive/tar: invalid tar header`), "not a tar archive"},
	{lazyregexp.New(`yaml: unmarshal errors:\s*`), ""},
	{lazyregexp.New("cannot unmarshal !!\\w+( `[^`\n]*`)? into \\S+"), "a value of another kind is expected here, not$1"},
	{lazyregexp.New(`invalid character ('[^\n]+?') (?:looking for beginning of (?:value|object key string)|after (?:top-level value|object key(?::value pair)?|array element)|in [a-z ]+)`), "unexpected character $1"},
	{lazyregexp.New(`unexpected EOF|unexpected end of JSON input`), "it ends too early"},
	{lazyregexp.New(`exec: ("[^"\n]+"): executable file not found in \$PATH`), "$1 is not in PATH"},
	{lazyregexp.New(`(?:dial|read|write) (?:tcp|udp|unix) (?:[^ \n]+->)?([^ \n]+): (?:connect: |read: |write: )?`), "$1: "},
	{lazyregexp.New(`dial (?:tcp|udp): `), ""},
	{lazyregexp.New(`lookup ([^: \n]+)(?: on [^ \n]+)?: no such host`), "there is no host $1"},
	{lazyregexp.New(`i/o timeout`), "no answer in time"},
	{lazyregexp.New(`: EOF\b`), ": it is empty or ends too early"},
}

// plainly returns a line of an error in plain words.
func plainly(line string) string {
	for _, w := range rawWords {
		line = w.form().ReplaceAllString(line, w.text)
	}
	// An error often repeats the file that its inner error names.
	return strings.Join(slices.Compact(strings.Split(line, ": ")), ": ")
}

// flagError returns pflag's error as one line, with the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		return usagef("--%s: %s", value.GetFlag().Name, plainNumber(value.Unwrap()))
	case errors.As(err, &missing):
		return usagef("%s needs a value", written(missing.GetSpecifiedName(), missing.GetSpecifiedShortnames()))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() == "" {
			if near := spec.Nearest(name, flagNames(cmd)); near != "" {
				return usagef("unknown flag --%s: did you mean --%s?", name, near)
			}
		}
		return usagef("unknown flag %s", written(name, unknown.GetSpecifiedShortnames()))
	}
	return &usageError{err}
}

// written returns a flag as it was written: --name, or its letter, the first of name, if it was among shorthands
// (-abc).
func written(name, shorthands string) string {
	if shorthands == "" {
		return "--" + name
	}
	return "-" + string(rune(name[0]))
}

// plainNumber returns strconv's error about the value of a flag in plain words, and other errors unchanged.
func plainNumber(err error) string {
	number, ok := err.(*strconv.NumError)
	switch {
	case !ok:
		return err.Error()
	case number.Func == "ParseBool":
		return fmt.Sprintf("%q is neither true nor false", number.Num)
	case number.Err == strconv.ErrRange:
		return fmt.Sprintf("%q is too large or too small", number.Num)
	case number.Func == "ParseFloat":
		return fmt.Sprintf("%q is not a number", number.Num)
	}
	return fmt.Sprintf("%q is not a whole number", number.Num)
}

// exclude makes cmd refuse two or more of flags together. cobra is also informed, so that its completion offers no
// second one; its own refusal would come later.
func exclude(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			if err := before(cmd, args); err != nil {
				return err
			}
		}
		given := slices.DeleteFunc(slices.Clone(flags), func(name string) bool { return !cmd.Flags().Changed(name) })
		if slices.Sort(given); len(given) > 1 {
			return usagef("--%s cannot be given together", strings.Join(given, " and --"))
		}
		return nil
	}
}

// plainProblem returns a check's error without the key of the cluster file, for a flag that names it.
func plainProblem(err error) error {
	var problems *spec.Problems
	if errors.As(err, &problems) {
		return errors.New(problems.List[0].Message)
	}
	return err
}
