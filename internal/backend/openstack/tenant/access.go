package tenant

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"nearmetal/internal/text"
)

// center has the clients of a cloud's services.
type center struct {
	compute, network, image *gophercloud.ServiceClient
}

// novaVersion is the requested version of Nova's API: server groups with one policy (2.64), flavors with extra specs
// (2.61). Every release since Rocky has it.
const novaVersion = "2.64"

// callTime bounds one API call, without its retries.
var callTime = time.Minute

// login reads the cloud's address and the credentials from clouds.yaml or the variables OS_*, and logs in.
func login(ctx context.Context, cloud string) (*center, error) {
	var auth gophercloud.AuthOptions
	endpoint := gophercloud.EndpointOpts{Region: os.Getenv("OS_REGION_NAME")}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if cloud == "" && os.Getenv("OS_CLOUD") == "" {
		var err error
		if auth, err = openstack.AuthOptionsFromEnv(); err != nil {
			return nil, fmt.Errorf("no cloud is named: write openstack:CLOUD, a cloud of clouds.yaml, or set OS_CLOUD, or the variables of an RC file (%s)", oneLine(err))
		}
	} else {
		var opts []clouds.ParseOption
		if cloud != "" {
			opts = append(opts, clouds.WithCloudName(cloud))
		}
		a, e, tls, err := clouds.Parse(opts...)
		if err != nil {
			return nil, fmt.Errorf("clouds.yaml, looked for in this directory, in openstack below the user's configuration, and in /etc/openstack: %s", oneLine(err))
		}
		auth, endpoint = a, e
		if tls != nil {
			t.TLSClientConfig = tls
		}
	}
	auth.AllowReauth = true
	p, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(http.Client{Transport: &retry{next: t, pause: retryPause}}))
	if err != nil {
		return nil, explain("logging in", err)
	}
	c := &center{}
	for _, s := range []struct {
		to   **gophercloud.ServiceClient
		make func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
		what string
	}{{&c.compute, openstack.NewComputeV2, "Nova"}, {&c.network, openstack.NewNetworkV2, "Neutron"}, {&c.image, openstack.NewImageV2, "Glance"}} {
		if *s.to, err = s.make(p, endpoint); err != nil {
			return nil, fmt.Errorf("the cloud's catalog has no %s: %s", s.what, oneLine(err))
		}
	}
	c.compute.Microversion = novaVersion
	return c, nil
}

// oneLine returns an error of the library as one line of at most 500 bytes.
func oneLine(err error) string { return text.Clip(text.OneLine(err.Error()), 500) }

// explain returns an error for a failed call, in the cloud's own words if it sent some.
func explain(what string, err error) error {
	var code gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &code) {
		return fmt.Errorf("OpenStack: %s: %s", what, oneLine(err))
	}
	return &refused{code.Actual, fmt.Sprintf("OpenStack: %s: %d: %s", what, code.Actual, said(code.Body))}
}

// refused is an answer that reports a failure.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return r.text }

// notFound reports whether err means that the object does not exist.
func notFound(err error) bool {
	return gophercloud.ResponseCodeIs(err, http.StatusNotFound)
}
