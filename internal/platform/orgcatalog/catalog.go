// Package orgcatalog has the platforms that organizations imported for themselves. It owns their versions, what an
// organization may have of them, and the catalog as an organization sees it.
//
// It promises that a platform is seen by its organization alone, that none shadows one that everybody sees, that a
// process sees an import as soon as it is committed, by whatever process, and that the work of an import is bounded. It
// knows no HTTP, and of flows only which actions they use.
package orgcatalog

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
)

// keptBytes bounds the catalog files whose loaded form is kept in memory, which takes several times that.
const keptBytes = 16 << 20

// Service is the door to imported platforms. Safe for concurrent use.
type Service struct {
	pool pg.Pool
	// reads are connections that no transaction holds while it asks for a catalog: whoever asks may be inside of one.
	reads  pg.Pool
	public *catalog.Catalog
	q      *db.Queries
	// turn lets one import read a document at a time, since that takes memory.
	turn chan struct{}

	mu    sync.Mutex
	bytes int
	// order has what was used last in front.
	order *list.List
	byOrg map[uuid.UUID]*list.Element
}

type kept struct {
	orgID      uuid.UUID
	generation int64
	bytes      int
	catalog    *catalog.Catalog
}

// New returns a service, and has public hand out what it knows. reads must be another pool than pool.
func New(pool, reads pg.Pool, public *catalog.Catalog) *Service {
	s := &Service{
		pool: pool, reads: reads, public: public, q: db.New(), turn: make(chan struct{}, 1), order: list.New(),
		byOrg: map[uuid.UUID]*list.Element{},
	}
	public.ShareWith(s)
	return s
}

// CatalogOf implements catalog.Organizations. It asks for the generation each time, one row by its key, so that no
// process ever uses an import that another has replaced.
func (s *Service) CatalogOf(ctx context.Context, orgID uuid.UUID) (*catalog.Catalog, error) {
	generation, err := s.q.CatalogGeneration(ctx, s.reads, orgID)
	if pg.IsNoRows(err) {
		return s.public, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the generation of a catalog: %w", err)
	}
	if c := s.cached(orgID, generation); c != nil {
		return c, nil
	}
	// Files are read after the generation: what a later import puts there is kept under the earlier number, and read
	// once more.
	files, err := s.q.CatalogFiles(ctx, s.reads, orgID)
	if err != nil {
		return nil, fmt.Errorf("read the imported platforms: %w", err)
	}
	k := &kept{orgID: orgID, generation: generation}
	if k.catalog, k.bytes, err = s.load(files); err != nil {
		return nil, err
	}
	return s.keep(k), nil
}

// load puts the platforms behind the public ones. One whose id has since come with the program is not seen.
func (s *Service) load(files []db.CatalogFilesRow) (*catalog.Catalog, int, error) {
	var sources []catalog.Source
	size := 0
	for _, f := range files {
		if _, taken := s.public.Platform(f.PlatformID); !taken {
			sources = append(sources, catalog.Source{Name: sourceName(f.PlatformID, f.Version), Text: []byte(f.File)})
			size += len(f.File)
		}
	}
	if len(sources) == 0 {
		return s.public, 0, nil
	}
	c, err := s.public.With(sources...)
	if err != nil {
		return nil, 0, fmt.Errorf("load imported platforms: %w", err)
	}
	return c, size, nil
}

func sourceName(platformID string, version int32) string {
	return fmt.Sprintf("version %d of the imported platform %s", version, platformID)
}

func (s *Service) cached(orgID uuid.UUID, generation int64) *catalog.Catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byOrg[orgID]
	if !ok || e.Value.(*kept).generation != generation {
		return nil
	}
	s.order.MoveToFront(e)
	return e.Value.(*kept).catalog
}

// keep remembers a catalog and forgets those that were used longest ago. Of two that loaded the same the first wins, so
// that all have one.
func (s *Service) keep(k *kept) *catalog.Catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.byOrg[k.orgID]; ok {
		if was := e.Value.(*kept); was.generation >= k.generation {
			return was.catalog
		}
		s.forget(e)
	}
	s.byOrg[k.orgID] = s.order.PushFront(k)
	s.bytes += k.bytes
	for s.bytes > keptBytes && s.order.Len() > 1 {
		s.forget(s.order.Back())
	}
	return k.catalog
}

func (s *Service) forget(e *list.Element) {
	k := s.order.Remove(e).(*kept)
	delete(s.byOrg, k.orgID)
	s.bytes -= k.bytes
}
