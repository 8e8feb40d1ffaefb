package iam

// predefined are the permissions of Google's own roles that a plan may grant, as far as
// they concern what rollout uses. Source: the pages "Roles and permissions" of each service,
// docs.cloud.google.com/iam/docs/roles-permissions/pubsub and so on.
var predefined = map[string][]string{
	"roles/pubsub.publisher":  {"pubsub.topics.publish"},
	"roles/pubsub.subscriber": {"pubsub.subscriptions.consume", "pubsub.topics.attachSubscription"},
	"roles/secretmanager.secretAccessor": {
		"secretmanager.versions.access",
	},
	"roles/iam.serviceAccountTokenCreator": {
		"iam.serviceAccounts.getAccessToken", "iam.serviceAccounts.getOpenIdToken",
		"iam.serviceAccounts.signBlob", "iam.serviceAccounts.signJwt",
	},
	"roles/iam.serviceAccountUser": {"iam.serviceAccounts.actAs"},
	"roles/cloudkms.cryptoKeyEncrypterDecrypter": {
		"cloudkms.cryptoKeyVersions.useToDecrypt", "cloudkms.cryptoKeyVersions.useToEncrypt",
	},
	"roles/run.invoker": {"run.routes.invoke"},
}
