package stack

import (
	"strings"

	"rollout/shared/config"
)

// readImage allows fetching the image of the pool's servers if it is in a private registry
// of AWS.
func (b *builder) readImage(p config.Pool) []grant {
	image, ok := b.Deployment.MachinesOf(p).PrivateImage()
	if !ok {
		return nil
	}
	repository := []string{"arn", b.partition, "ecr", image.Region, image.Account, "repository/" + image.Name}
	return []grant{
		{
			id:        "SignInToTheRegistry",
			actions:   []string{"ecr:GetAuthorizationToken"},
			resources: []string{"*"},
			why:       "The action knows no resources.",
		},
		{
			id:        "FetchTheImage",
			actions:   []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"},
			resources: []string{strings.Join(repository, ":")},
		},
	}
}
