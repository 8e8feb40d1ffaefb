package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// binder writes a parsed TOML tree over a config and adds a problem for every
// unknown key and wrong type. The TOML library's own decoder stops at the first.
type binder struct {
	*checker
	known []string // the paths of all fields, for suggestions
	// merge keeps what the tree does not name also of values behind pointers and in
	// maps, which it copies. Otherwise they begin with their defaults.
	merge bool
}

// table writes m to the struct v; at is the path of v.
func (b *binder) table(v reflect.Value, m map[string]any, at string) {
	fields := fieldsOf(v.Type())
	for _, key := range sortedKeys(m) {
		path := join(at, key)
		i := slices.IndexFunc(fields, func(f keyField) bool { return f.key == key })
		if i < 0 {
			b.unknown(path, at, key)
			continue
		}
		b.value(v.FieldByIndex(fields[i].index), m[key], path)
	}
}

func (b *binder) value(v reflect.Value, x any, at string) {
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		b.duration(t, x, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		b.pointer(v, x, at)
	case reflect.Struct:
		if m, ok := x.(map[string]any); ok {
			b.table(v, m, at)
			return
		}
		b.wrongType(at, "a table", x)
	case reflect.Slice:
		b.slice(v, x, at)
	case reflect.Map:
		b.tables(v, x, at)
	case reflect.Interface: // any value, for JSON
		v.Set(reflect.ValueOf(x))
	case reflect.String:
		if s, ok := x.(string); ok {
			v.SetString(s)
			return
		}
		b.wrongType(at, "a string in quotes", x)
	case reflect.Bool:
		if t, ok := x.(bool); ok {
			v.SetBool(t)
			return
		}
		b.wrongType(at, "true or false", x)
	case reflect.Int, reflect.Int64:
		if n, ok := x.(int64); ok {
			v.SetInt(n)
			return
		}
		b.wrongType(at, "a whole number", x)
	case reflect.Float64:
		switch n := x.(type) {
		case float64:
			v.SetFloat(n)
		case int64:
			v.SetFloat(float64(n))
		default:
			b.wrongType(at, "a number", x)
		}
	default:
		b.add(at, "cannot be set: config fields of type %s are not supported", v.Type())
	}
}

// pointer writes x to a new value, to which it points v.
func (b *binder) pointer(v reflect.Value, x any, at string) {
	old := v.Elem()
	v.Set(reflect.New(v.Type().Elem()))
	if b.merge && old.IsValid() {
		v.Elem().Set(old)
	} else if d, ok := v.Interface().(interface{ setDefaults() }); ok {
		d.setDefaults()
	}
	b.value(v.Elem(), x, at)
}

func (b *binder) slice(v reflect.Value, x any, at string) {
	list := reflect.ValueOf(x)
	if list.Kind() != reflect.Slice {
		b.wrongType(at, "a list", x)
		return
	}
	out := reflect.MakeSlice(v.Type(), list.Len(), list.Len())
	for i := range list.Len() {
		b.value(out.Index(i), list.Index(i).Interface(), element(at, i))
	}
	v.Set(out)
}

// tables writes the tables of x, such as [graders.a] and [graders.b], to the map v.
func (b *binder) tables(v reflect.Value, x any, at string) {
	m, ok := x.(map[string]any)
	if !ok {
		b.wrongType(at, "tables", x)
		return
	}
	out := reflect.MakeMap(v.Type())
	if b.merge {
		for _, name := range v.MapKeys() {
			out.SetMapIndex(name, v.MapIndex(name))
		}
	}
	for _, name := range sortedKeys(m) {
		e := reflect.New(v.Type().Elem())
		if old := out.MapIndex(reflect.ValueOf(name)); old.IsValid() {
			e.Elem().Set(old)
		} else if d, ok := e.Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		if e.Elem().Kind() == reflect.Struct {
			b.known = append(b.known, pathsOf(e.Elem().Type(), join(at, name))...)
		}
		b.value(e.Elem(), m[name], join(at, name))
		out.SetMapIndex(reflect.ValueOf(name), e.Elem())
	}
	v.Set(out)
}

func (b *binder) duration(t encoding.TextUnmarshaler, x any, at string) {
	const want = `a duration in quotes, such as "500ms", "10s" or "1h30m"`
	s, ok := x.(string)
	if !ok {
		b.wrongType(at, want, x)
		return
	}
	if t.UnmarshalText([]byte(s)) != nil {
		b.add(at, "%s is not a duration: write %s", quote(s), want)
	}
}

func (b *binder) wrongType(at, want string, x any) {
	b.add(at, "must be %s, is %s", want, describe(x))
}

func (b *binder) unknown(path, table, key string) {
	if b.full() {
		b.add(path, "")
		return
	}
	if hint := suggest(b.known, table, key); hint != "" {
		b.add(path, "unknown key; did you mean %s?", hint)
		return
	}
	where := "at the top of the file"
	if table != "" {
		where = "in [" + shorten(table) + "]"
	}
	b.add(path, "unknown key %s: remove it", where)
}

// describe names a TOML value for a message: its type, its text, or both.
func describe(x any) string {
	switch x := x.(type) {
	case string:
		return "the string " + quote(x)
	case bool, int64, float64:
		return fmt.Sprint(x)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return "a date or time"
}

// keyField is a field of a struct, by its TOML key.
type keyField struct {
	key   string
	typ   reflect.Type
	index []int // for reflect's FieldByIndex
}

// fieldsOf returns the fields of t, in order. Those of an embedded struct are fields
// of t.
func fieldsOf(t reflect.Type) (out []keyField) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			key, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
			out = append(out, keyField{key, f.Type, f.Index})
		}
	}
	return out
}

// pathsOf returns the path of every field below t. Lists have "[]" in it.
func pathsOf(t reflect.Type, at string) (paths []string) {
	for _, f := range fieldsOf(t) {
		path, ft := join(at, f.key), f.typ
		paths = append(paths, path)
		if ft.Kind() == reflect.Slice {
			path += "[]"
		}
		if ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			paths = append(paths, pathsOf(ft, path)...)
		}
	}
	return paths
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
