package pg

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUID has ids travel as their 16 bytes. Without it the driver takes them for values of database/sql: each is
// formatted and parsed again, which took an eighth of the time of small calls.
func registerUUID(c *pgx.Conn) {
	element := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	c.TypeMap().RegisterType(element)
	c.TypeMap().RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID,
		Codec: &pgtype.ArrayCodec{ElementType: element}})
}

type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ours := value.(uuid.UUID); ours && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ours := target.(*uuid.UUID); ours && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID) //nolint:forcetypeassert // by PlanEncode
	return append(buf, id[:]...), nil
}

func (uuidPlan) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID) //nolint:forcetypeassert // by PlanScan
	if len(src) != len(id) {
		return fmt.Errorf("pg: %d bytes for a uuid, which must be there and has 16", len(src))
	}
	copy(id[:], src)
	return nil
}
