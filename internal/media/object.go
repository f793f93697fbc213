package media

// object is a JSON object that is built of a form or of an XML element: fields in the order of their first appearance,
// each with one value or more.
type object struct {
	fields []field
	// index finds fields by key once there are more than a few.
	index map[string]int
}

type field struct {
	key    string
	values []value
	// list: it is an array, also of one value.
	list bool
}

// value is a text or an object.
type value struct {
	text   string
	object *object
}

// few is up to how many fields are looked through one by one.
const few = 8

func (o *object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range o.fields {
		if o.fields[i].key == key {
			return i
		}
	}
	return -1
}

// add adds a value to a field.
func (o *object) add(key string, v value) {
	if i := o.find(key); i >= 0 {
		o.fields[i].values = append(o.fields[i].values, v)
		return
	}
	o.fields = append(o.fields, field{key: key, values: []value{v}})
	if len(o.fields) <= few {
		return
	}
	if o.index == nil {
		o.index = make(map[string]int)
		for i := range o.fields {
			o.index[o.fields[i].key] = i
		}
	}
	o.index[key] = len(o.fields) - 1
}

// appendTo appends the object as JSON: a field with several values is an array of them.
func (o *object) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range o.fields {
		f := &o.fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendText(dst, f.key), ':')
		if len(f.values) == 1 && !f.list {
			dst = f.values[0].appendTo(dst)
			continue
		}
		for k, v := range f.values {
			mark := byte(',')
			if k == 0 {
				mark = '['
			}
			dst = v.appendTo(append(dst, mark))
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (v value) appendTo(dst []byte) []byte {
	if v.object != nil {
		return v.object.appendTo(dst)
	}
	return AppendText(dst, v.text)
}
