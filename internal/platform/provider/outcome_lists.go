package provider

import (
	"fmt"

	"github.com/tidwall/gjson"
)

// outcomeLists are the lists of statuses by which a call says for itself what an answer proves.
var outcomeLists = map[string]Kind{"success": Success, "refused": Refused, "retry": NotArrived, "unclear": Unknown}

// outcomes renders what a call says of the statuses of its answer, before the catalog does; nil for nothing.
func (p *preparer) outcomes() (map[int]Kind, error) {
	raw, err := p.render("outcome", p.call.Compiled.Outcomes)
	if err != nil || raw == nil {
		return nil, err
	}
	lists := gjson.ParseBytes(raw)
	if lists.Type == gjson.Null {
		return nil, nil
	}
	out := map[int]Kind{}
	lists.ForEach(func(name, statuses gjson.Result) bool {
		kind := outcomeLists[name.String()]
		if kind == "" || !statuses.IsArray() {
			err = fmt.Errorf("%w: outcome must be an object of lists: success, refused, retry, unclear", ErrParams)
			return false
		}
		statuses.ForEach(func(_, v gjson.Result) bool {
			status, whole := wholeNumber(v)
			switch {
			case !whole || status < 200 || status > 599:
				err = fmt.Errorf("%w: outcome: %s is no status of an answer", ErrParams, v.Raw)
			case out[status] != "":
				err = fmt.Errorf("%w: outcome: status %d stands there twice", ErrParams, status)
			}
			out[status] = kind
			return err == nil
		})
		return err == nil
	})
	if err == nil && !lists.IsObject() {
		err = fmt.Errorf("%w: outcome must be an object of lists: success, refused, retry, unclear", ErrParams)
	}
	return out, err
}
