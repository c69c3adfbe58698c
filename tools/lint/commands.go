package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// commandsDir is the directory whose files are named after their commands.
const commandsDir = "cmd/nearmetal"

// commandFiles checks the names of the files of commandsDir, except its tests. A file that defines commands is named
// after one of them, without hyphens. A file of a subcommand, or of another part of a command, has a name
// COMMAND_PART.go. Code that several commands share is in files whose names do not begin with the name of a command.
func commandFiles(top string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(top, commandsDir, "*.go"))
	if err != nil {
		return nil, err
	}
	files := map[string][]string{} // the commands that each file defines, by its name without .go
	for _, path := range paths {
		stem := strings.TrimSuffix(filepath.Base(path), ".go")
		if strings.HasSuffix(stem, "_test") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		files[stem] = commandNames(file)
	}
	return misnamed(files), nil
}

// misnamed returns a line for each file whose name does not follow from its commands.
func misnamed(files map[string][]string) []string {
	var faults []string
	for stem, names := range files {
		own, part, isPart := strings.Cut(stem, "_")
		switch {
		case isPart && !slices.Contains(files[own], own):
			faults = append(faults, fmt.Sprintf("%s/%s.go: %s.go defines no command %s: name the file after its command", commandsDir, stem, own, own))
		case isPart && part == "":
			faults = append(faults, fmt.Sprintf("%s/%s.go: nothing follows the command's name", commandsDir, stem))
		case !isPart && len(names) > 0 && stem != "root" && !slices.Contains(names, stem):
			faults = append(faults, fmt.Sprintf("%s/%s.go defines the command %s: name the file after it, or COMMAND_%s.go after the command above", commandsDir, stem, names[0], names[0]))
		case !isPart && len(names) == 0:
			for other, of := range files {
				if rest := strings.TrimPrefix(stem, other); rest != stem && slices.Contains(of, other) {
					faults = append(faults, fmt.Sprintf("%s/%s.go: its name begins with the command %s: name it %s_%s.go", commandsDir, stem, other, other, rest))
				}
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// commandNames returns the names of the commands that a file defines, without hyphens: the first word of each field Use.
func commandNames(file *ast.File) []string {
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok || key.Name != "Use" {
			return true
		}
		if lit, ok := kv.Value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if use, err := strconv.Unquote(lit.Value); err == nil {
				name, _, _ := strings.Cut(use, " ")
				names = append(names, strings.ReplaceAll(name, "-", ""))
			}
		}
		return true
	})
	return names
}

// logicMax is the maximum number of lines of a function of the commands that neither handles flags nor prints. A longer
// one decides or computes: it belongs in a package of internal/, with a test.
const logicMax = 30

// shown matches the types of flags and of output in the signature of a function.
var shown = regexp.MustCompile(`\b(cobra|pflag|terminal)\.|\bio\.Writer\b|\bstrings\.Builder\b`)

// commandLogic checks that the functions of commandsDir, except its tests, contain no logic (logicMax).
func commandLogic(top string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(top, commandsDir, "*.go"))
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := longLogic(filepath.Base(path), src)
		if err != nil {
			return nil, err
		}
		faults = append(faults, found...)
	}
	return faults, nil
}

// longLogic returns a line for each function of a file that is longer than logicMax and whose signature has no type of
// shown.
func longLogic(name string, src []byte) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, 0)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1
		signature := src[set.Position(fn.Pos()).Offset:set.Position(fn.Body.Pos()).Offset]
		if lines > logicMax && !shown.Match(signature) {
			faults = append(faults, fmt.Sprintf("%s/%s: %s has %d lines, no flags, and prints nothing; at most %d: move it to the package of its subject", commandsDir, name, fn.Name.Name, lines, logicMax))
		}
	}
	return faults, nil
}
