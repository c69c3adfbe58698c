package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// comments are the documentation of types ("Group") and fields ("Group.Count").
type comments map[string]string

// readComments reads the comments of the structs in a package's directory.
func readComments(dir string) (comments, error) {
	notTests := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), dir, notTests, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if packages["spec"] == nil {
		return nil, fmt.Errorf("%s does not hold package spec", dir)
	}
	found := comments{}
	for _, file := range packages["spec"].Files {
		for _, decl := range file.Decls {
			if types, ok := decl.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				for _, s := range types.Specs {
					found.add(types, s.(*ast.TypeSpec))
				}
			}
		}
	}
	return found, nil
}

func (c comments) add(decl *ast.GenDecl, s *ast.TypeSpec) {
	doc := s.Doc
	if doc == nil {
		doc = decl.Doc
	}
	c[s.Name.Name] = text.OneLine(doc.Text())
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range fields.Fields.List {
		comment := f.Doc.Text()
		if comment == "" {
			comment = f.Comment.Text()
		}
		for _, name := range f.Names {
			c[s.Name.Name+"."+name.Name] = text.OneLine(comment)
		}
	}
}

// of returns a field's comment, which must exist. Go's comments begin with the name of the field, which a table of
// keys need not repeat.
func (c comments) of(owner *spec.Type, f *spec.Field) (string, error) {
	text := c[owner.Name+"."+f.GoName]
	if text == "" {
		return "", fmt.Errorf("%s.%s has no comment", owner.Name, f.GoName)
	}
	for _, start := range []string{" is ", " are ", ": "} {
		if rest, found := strings.CutPrefix(text, f.GoName+start); found && rest != "" {
			return strings.ToUpper(rest[:1]) + rest[1:], nil
		}
	}
	return text, nil
}
