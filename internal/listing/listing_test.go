package listing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/listing"
)

// TestCreated: the ids of what was created within the range lie in it, and those of a day away do not.
func TestCreated(t *testing.T) {
	t.Parallel()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	sec, nsec := id.Time().UnixTime()
	at := time.Unix(sec, nsec)
	in := func(r listing.Range) bool { return r.Least.String() <= id.String() && id.String() <= r.Most.String() }
	for _, c := range []struct {
		after, before time.Duration
		want          bool
	}{
		{-time.Minute, time.Minute, true}, {0, 0, true}, {time.Minute, -time.Minute, true},
		{24 * time.Hour, 48 * time.Hour, false},
		{-48 * time.Hour, -24 * time.Hour, false},
	} {
		after, before := at.Add(c.after), at.Add(c.before)
		assert.Equal(t, c.want, in(listing.Created(&after, &before)), "%s to %s", c.after, c.before)
	}
	assert.True(t, in(listing.Created(nil, nil)))
	for _, edge := range []time.Time{{}, time.Unix(-1, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		time.UnixMilli(1<<48 + 1)} {
		assert.Equal(t, edge.UnixMilli() < at.UnixMilli(), in(listing.Created(&edge, nil)), edge)
		assert.Equal(t, edge.UnixMilli() > at.UnixMilli(), in(listing.Created(nil, &edge)), edge)
	}
}

// TestPage_Behind: a page goes on behind an item in its direction, and never leaves its range.
func TestPage_Behind(t *testing.T) {
	t.Parallel()
	id := func(text string) uuid.UUID { return uuid.MustParse("00000000-0000-7000-8000-0000000000" + text) }
	p := listing.Page{Range: listing.Range{Least: id("10"), Most: id("f0")}}
	for behind, want := range map[string]string{"20": "21", "00": "10", "0f": "10"} {
		assert.Equal(t, listing.Range{Least: id(want), Most: id("f0")}, p.Behind(id(behind)).Range)
	}
	p.Newest = true
	for behind, want := range map[string]string{"20": "1f", "ff": "f0", "f1": "f0", "e0": "df"} {
		assert.Equal(t, listing.Range{Least: id("10"), Most: id(want)}, p.Behind(id(behind)).Range)
	}
	p.Most = uuid.Max
	assert.Equal(t, "00000000-0000-7000-8000-00000000ffff",
		p.Behind(uuid.MustParse("00000000-0000-7000-8000-000000010000")).Most.String())
	assert.Equal(t, "00000000-0000-7000-8000-000000000100", listing.Page{}.Behind(id("ff")).Least.String())
}

func TestBeginning(t *testing.T) {
	t.Parallel()
	assert.Nil(t, listing.Beginning(""))
	assert.Equal(t, `A\_50\%\\B%`, *listing.Beginning(`A_50%\B`))
}
