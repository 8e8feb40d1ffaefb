package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Diagnostics returns the probes and remedies of a stack; see cloud.Installation.
func (s *Stack) Diagnostics(machine capacity.Source) cloud.Diagnostics {
	remedies := s.remedies()
	return cloud.Diagnostics{
		Before:         project{s.rest, s.Google, s.Deployment, s.machine}.probes(),
		Reach:          func(ctx context.Context) (string, error) { return reach(ctx, storageEndpoint()) },
		Authenticate:   authenticate(s.Google, s.Ports.Docs),
		InspectMachine: inspect(NewInstance(machine, InstanceOptions{})),
		Remedy: func(check string, err error) string {
			if explainsItself(err) {
				return ""
			}
			return remedies[check][fault.KindOf(err)]
		},
	}
}

// remedies say what to do about kinds of failure, by check.
func (s *Stack) remedies() map[string]map[fault.Kind]string {
	const network = "look at the network between here and Google Cloud: DNS, firewall, HTTPS_PROXY, and the variables " +
		StorageEmulatorVariable + ", " + FirestoreEmulatorVariable + " and " + PubSubEmulatorVariable
	at := s.Deployment.Cloud
	bucket := "gs://" + at.GCS.Bucket
	objects := fmt.Sprintf("create, get and delete objects under %s/%spending/", bucket, at.GCS.Prefix)
	noBucket := "create the bucket, or look at cloud.gcs.bucket and cloud.project"
	queue := at.PubSub.Prefix + host.DoctorQueue
	return map[string]map[fault.Kind]string{
		cloud.CheckReachability: {fault.Unavailable: network},
		cloud.CheckAuth: {
			fault.Denied: "give this account the role roles/datastore.user in the project " + at.Project,
			fault.NotFound: fmt.Sprintf("run gcloud firestore databases create --database=%q --location=%s --project=%s, or "+
				"look at cloud.firestore.database", at.Firestore.Database, at.Region, at.Project),
			fault.Unavailable: network,
		},
		cloud.CheckObjectStore: {
			fault.Denied: "let this account " + objects + ", get the object " + at.GCS.Prefix + record.OwnerKey +
				", and get the bucket: roles/storage.objectUser and roles/storage.legacyBucketReader on " + bucket,
			fault.NotFound:    noBucket,
			fault.Unavailable: network,
		},
		cloud.CheckQueue: {
			fault.Denied: fmt.Sprintf("give this account the roles roles/pubsub.publisher on the topic %s and "+
				"roles/pubsub.subscriber on the subscription %s", queue, queue),
			fault.NotFound:    "deploy the stack, or look at cloud.pubsub.prefix and cloud.project",
			fault.Unavailable: network,
		},
		cloud.CheckSecretStore: {
			fault.Denied: "give this account the role roles/secretmanager.secretAccessor on the secrets that begin with " +
				at.Secrets.Prefix,
			fault.Unavailable: network,
		},
		cloud.CheckComputeHint: {
			fault.Unavailable: "let the instance's metadata server be asked, also from containers",
		},
		cloud.CheckContentID: {
			fault.Denied:   "let this account " + objects + ": roles/storage.objectUser on " + bucket,
			fault.NotFound: noBucket,
			fault.Corrupt: "something between here and Cloud Storage changes bytes: look at proxies, and at this machine's " +
				"memory",
			fault.Unavailable: network,
		},
	}
}

// explainsItself reports whether the error has a remedy that is better than one about
// roles: the credentials were refused or missing, or the project cannot be used.
func explainsItself(err error) bool {
	remedy := fault.RemedyOf(err)
	return fault.Is(err, fault.Denied) && remedy != "" && remedy != permissionRemedy
}

// storageEndpoint returns the address of Cloud Storage.
func storageEndpoint() string {
	at := cmp.Or(os.Getenv(StorageEmulatorVariable), "https://storage.googleapis.com")
	if !strings.Contains(at, "://") {
		at = "http://" + at // as the SDK reads the variable
	}
	return at
}

// reach sends a request to the address. Any answer proves DNS, TCP and TLS.
func reach(ctx context.Context, at string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "the endpoint %s", at)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fault.WithKind(fault.Unavailable, err, "connect")
	}
	_ = answer.Body.Close() // the body is not used
	return r.URL.Redacted(), nil
}

// authenticate finds credentials and asks the database with them for a document that
// does not exist.
func authenticate(cfg Config, docs document.Store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if _, err := cfg.Credentials.Token(ctx); err != nil {
			return "", err
		}
		who, err := accountOf(cfg)
		if err != nil {
			return "", err
		}
		return who, fault.Wrap(docs.Ping(ctx), "read the database")
	}
}

// accountOf describes the account of the credentials.
func accountOf(cfg Config) (string, error) {
	var file struct {
		Account string `json:"client_email"`
		Type    string `json:"type"`
	}
	// Credentials of an instance or a function are in no file.
	if content := cfg.Credentials.JSON(); len(content) > 0 && json.Unmarshal(content, &file) != nil {
		return "", fault.New(fault.Denied, "the file with the credentials is damaged")
	}
	return cmp.Or(file.Account, file.Type, "the machine's account"), nil
}

// plural returns a number of things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// inspect describes the machine and, on an instance of Compute Engine, its notices.
func inspect(i *Instance) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		inventory, err := i.Inventory(ctx)
		if err != nil {
			return "", fault.Wrap(err, "inventory")
		}
		found := fmt.Sprintf("%d GPUs", len(inventory.GPUs))
		if inventory.Instance == "" {
			return found + ", not on a Compute Engine instance", nil
		}
		found += ", " + inventory.Instance
		notice, ok, err := i.Notice(ctx)
		if err != nil {
			return "", fault.Wrap(err, "ask for a notice")
		}
		if ok {
			found += ", goes away: " + notice.Reason
		}
		return found, nil
	}
}
