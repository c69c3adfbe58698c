package main

import (
	"bytes"
	"encoding/json"
	"strconv"

	"nearmetal/internal/spec"
)

// jsonSchema returns the file's schema (JSON Schema, draft 2020-12), which editors use for completion and checks. It
// is weaker than spec.Parse: formats are omitted.
func jsonSchema(c comments) ([]byte, error) {
	schema, err := schemaOf(c, spec.Schema(), nil)
	if err != nil {
		return nil, err
	}
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "nearmetal cluster file"
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(schema)
	return out.Bytes(), err
}

// schemaOf describes a value of type t, in the field f.
func schemaOf(c comments, t *spec.Type, f *spec.Field) (map[string]any, error) {
	switch t.Kind {
	case spec.Object:
		properties, required := map[string]any{}, []string{}
		for i := range t.Fields {
			f := &t.Fields[i]
			property, err := schemaOf(c, f.Type, f)
			if err != nil {
				return nil, err
			}
			if property["description"], err = c.of(t, f); err != nil {
				return nil, err
			}
			if f.Default != "" {
				property["default"] = literal(f.Type, f.Default)
			}
			if f.Required {
				required = append(required, f.Key)
			}
			properties[f.Key] = property
		}
		object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			object["required"] = required
		}
		if f != nil && f.Short != "" && f.Type == t {
			for i := range t.Fields {
				if word := &t.Fields[i]; word.Key == f.Short {
					return map[string]any{"anyOf": []any{object, scalarSchema(word.Type, word)}}, nil
				}
			}
		}
		return object, nil
	case spec.List:
		items, err := schemaOf(c, t.Elem, f)
		if t.Elem.Kind == spec.String && f.Enum == nil {
			items = looseText()
		}
		return map[string]any{"type": "array", "items": items}, err
	case spec.Map:
		values, err := schemaOf(c, t.Elem, f)
		if t.Elem.Kind == spec.String && f.Enum == nil {
			values = looseText()
		}
		return map[string]any{"type": "object", "additionalProperties": values}, err
	}
	return scalarSchema(t, f), nil
}

// looseText describes the texts in lists and maps, which may look like numbers.
func looseText() map[string]any {
	return map[string]any{"type": []string{"string", "number", "boolean"}}
}

func scalarSchema(t *spec.Type, f *spec.Field) map[string]any {
	schema := map[string]any{}
	switch t.Kind {
	case spec.Bool:
		schema["type"] = "boolean"
	case spec.Int:
		schema["type"] = "integer"
	case spec.Float:
		schema["type"] = "number"
	case spec.Bytes:
		schema["type"] = []string{"string", "integer"}
		schema["pattern"] = "^[0-9]+([KMGTkmgt](iB|B)?)?$"
	case spec.Text:
		schema["type"] = []string{"string", "number"}
	default:
		schema["type"] = "string"
	}
	if f.Enum != nil {
		values := []any{}
		for _, word := range f.Enum {
			values = append(values, literal(t, word))
		}
		schema["enum"] = values
	}
	if t.Kind == spec.Int || t.Kind == spec.Float {
		if f.Min != "" {
			schema["minimum"] = literal(t, f.Min)
		}
		if f.Max != "" {
			schema["maximum"] = literal(t, f.Max)
		}
	}
	return schema
}

// literal returns a tag's text as a JSON value.
func literal(t *spec.Type, s string) any {
	switch t.Kind {
	case spec.Bool:
		return s == "true"
	case spec.Int, spec.Float:
		if n, err := strconv.ParseFloat(s, 64); err == nil {
			return n
		}
	}
	return s
}
