package dialersim

import (
	"encoding/json"
	"hash/maphash"
	"strconv"
	"sync"
)

// keytable counts how often each key arrived. It is an open-addressing table without pointers inside, so that millions
// of keys cost the garbage collector nothing. Arrivals of uploads wait in a log until somebody asks, because a table of
// a million keys costs a cache miss for each, which would be most of the time of an upload.
type keytable struct {
	mu sync.Mutex
	// logs are the arrivals that are not in the table yet, waiting their number.
	logs    []arrivalLog
	waiting int
	// slots hold the upper hash bits in the high half and the entry's number plus one in the low half; zero is free.
	slots   []uint64
	entries []keyEntry
	text    []byte
}

// keyEntry is one key in the order of first arrival; its text is text[at:at+size].
type keyEntry struct {
	at       uint32
	arrivals uint32
	size     uint16
	rejected bool
}

const (
	// maxKey is the longest key, in bytes.
	maxKey = 1024
	// maxWaiting is how many arrivals wait at most.
	maxWaiting = 4 << 20
)

var tableSeed = maphash.MakeSeed()

// add counts one arrival of a key and returns how often it has arrived.
func (t *keytable) add(key []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	return t.addLocked(key, 1, false)
}

// log notes the arrivals of a call for later.
func (t *keytable) log(l arrivalLog) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, l)
	if t.waiting += len(l.sizes); t.waiting > maxWaiting {
		t.settle()
	}
}

// settle brings the logged arrivals into the table; the caller holds mu.
func (t *keytable) settle() {
	for _, l := range t.logs {
		at := 0
		for _, size := range l.sizes {
			end := at + int(size>>1)
			t.addLocked(l.text[at:end], 1, size&1 == 1)
			at = end
		}
	}
	t.logs, t.waiting = nil, 0
}

// arrivalLog holds arrivals in their order: the text of the keys, and the length of each, shifted left by one, with its
// rejected flag below.
type arrivalLog struct {
	text  []byte
	sizes []uint16
}

func (l *arrivalLog) add(key []byte, rejected bool) {
	size := uint16(len(key)) << 1
	if rejected {
		size |= 1
	}
	l.text = append(l.text, key...)
	l.sizes = append(l.sizes, size)
}

// addLocked counts n arrivals at once; the caller holds mu.
func (t *keytable) addLocked(key []byte, n int, rejected bool) int {
	e := t.locate(key)
	e.arrivals += uint32(n)
	e.rejected = e.rejected || rejected
	return int(e.arrivals)
}

// mark sets the rejected flag of a key without counting an arrival.
func (t *keytable) mark(key []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	t.locate(key).rejected = true
}

// count returns how often a key arrived.
func (t *keytable) count(key []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	if len(t.slots) == 0 {
		return 0
	}
	if i := t.slots[t.find(key)]; i != 0 {
		return int(t.entries[uint32(i)-1].arrivals)
	}
	return 0
}

// find returns the slot of a key, or the free slot where it belongs.
func (t *keytable) find(key []byte) uint64 {
	hash := maphash.Bytes(tableSeed, key)
	tag, mask := hash>>32, uint64(len(t.slots)-1)
	for at := tag & mask; ; at = (at + 1) & mask {
		slot := t.slots[at]
		if slot == 0 {
			return at
		}
		if slot>>32 == tag {
			if e := &t.entries[uint32(slot)-1]; string(t.text[e.at:e.at+uint32(e.size)]) == string(key) {
				return at
			}
		}
	}
}

// locate returns the entry of a key, made when it is new. The caller holds mu.
func (t *keytable) locate(key []byte) *keyEntry {
	if 2*(len(t.entries)+1) > len(t.slots) {
		t.grow()
	}
	at := t.find(key)
	if slot := t.slots[at]; slot != 0 {
		return &t.entries[uint32(slot)-1]
	}
	t.entries = append(t.entries, keyEntry{at: uint32(len(t.text)), size: uint16(len(key))})
	t.text = append(t.text, key...)
	t.slots[at] = maphash.Bytes(tableSeed, key)>>32<<32 | uint64(len(t.entries))
	return &t.entries[len(t.entries)-1]
}

func (t *keytable) grow() {
	old := t.slots
	t.slots = make([]uint64, max(64, 4*len(old)))
	mask := uint64(len(t.slots) - 1)
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		at := slot >> 32 & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = slot
	}
}

// each calls visit for every key in the order of first arrival, until it returns false. The table is locked only while
// a stretch of entries is copied, so that a slow reader holds up nobody.
func (t *keytable) each(visit func(key []byte, arrivals int, rejected bool) bool) {
	const stretch = 1024
	entries := make([]keyEntry, 0, stretch)
	for from := 0; ; from += len(entries) {
		t.mu.Lock()
		t.settle()
		entries = append(entries[:0], t.entries[from:min(from+stretch, len(t.entries))]...)
		text := t.text // what is written stays; growing copies it
		t.mu.Unlock()
		if len(entries) == 0 {
			return
		}
		for _, e := range entries {
			if !visit(text[e.at:e.at+uint32(e.size)], int(e.arrivals), e.rejected) {
				return
			}
		}
	}
}

// appendArrival appends one NDJSON line of arrivals.
func appendArrival(line, key []byte, arrivals int, rejected bool) []byte {
	line = append(line, `{"key":`...)
	line = appendString(line, key)
	line = append(line, `,"arrivals":`...)
	line = strconv.AppendInt(line, int64(arrivals), 10)
	line = append(line, `,"rejected":`...)
	line = strconv.AppendBool(line, rejected)
	return append(line, "}\n"...)
}

// appendString appends text as a JSON string.
func appendString(to, text []byte) []byte {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, err := json.Marshal(string(text))
			if err != nil {
				return append(to, `""`...)
			}
			return append(to, quoted...)
		}
	}
	to = append(to, '"')
	to = append(to, text...)
	return append(to, '"')
}
