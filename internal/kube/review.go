package kube

import (
	"context"
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Review asks the API server who has the token, and whether they may do verb on a path
// that is no resource, such as "get" on "/metrics". known is false for a token that the
// API server does not accept.
func (c *Client) Review(ctx context.Context, token, verb, path string) (known, allowed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	who := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	err = c.review(ctx, authenticationv1.SchemeGroupVersion.String(), "TokenReview", "tokenreviews", &who)
	if err != nil || !who.Status.Authenticated {
		return false, false, err
	}
	user := who.Status.User
	may := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}}
	for key, values := range user.Extra {
		may.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	err = c.review(ctx, authorizationv1.SchemeGroupVersion.String(), "SubjectAccessReview", "subjectaccessreviews", &may)
	return true, may.Status.Allowed && !may.Status.Denied, err
}

// review posts a review, which the answer replaces.
func (c *Client) review(ctx context.Context, version, kind, resource string, object runtime.Object) error {
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	result := c.nads.Post().AbsPath("/apis", version, resource).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
	if err := result.Error(); err != nil { // Raw's lacks the server's words
		return explain("create", resource, err)
	}
	answer, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(answer, object)
	}
	if err != nil {
		return fmt.Errorf("the answer to a %s: %w", kind, err)
	}
	return nil
}
