package api

import (
	"github.com/ogen-go/ogen/middleware"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/internal/forecast"
	"flowlane/internal/platform/catalog"
)

// onPlatform answers 404 for what is asked under a platform that the catalog does not have, or of a Domain that is not
// one of the platform in the path: the id of a Domain alone would name it under any.
type onPlatform struct {
	catalog   *catalog.Catalog
	forecasts *forecast.Service
}

func (o onPlatform) middleware(req middleware.Request, next middleware.Next) (middleware.Response, error) {
	name, _ := req.Params.Path("platform")
	platform, ok := name.(string)
	if !ok {
		return next(req)
	}
	id, _ := req.Params.Path("tenancy_id")
	tenancyID, ok := id.(string)
	if !ok {
		cat, err := o.catalog.Of(req.Context, account.FromContext(req.Context).OrgID, platform)
		if err != nil {
			return middleware.Response{}, err //nolint:wrapcheck // says everything
		}
		if _, known := cat.Platform(platform); !known {
			return middleware.Response{}, cat.MissingPlatform(platform)
		}
		return next(req)
	}
	d, err := o.forecasts.Domain(req.Context, account.FromContext(req.Context).OrgID, tenancyID)
	if err == nil && d.PlatformID != platform {
		err = fault.Missing("Domain")
	}
	if err != nil {
		return middleware.Response{}, err
	}
	return next(req)
}
