package secret_test

import (
	"encoding/json"
	"fmt"

	"rollout/shared/secret"
)

// A secret's text is hidden wherever it is printed, and only Reveal returns it.
func Example() {
	token := secret.NewValue("hf_12345")
	fmt.Println(token)
	fmt.Printf("%+v\n", struct{ Token secret.Value }{token})
	b, _ := json.Marshal(token)
	fmt.Println(string(b))
	fmt.Println("Authorization: Bearer", token.Reveal())

	fmt.Println("hf-token:", secret.CheckName("hf-token"))
	fmt.Println("HF_TOKEN is valid:", secret.CheckName("HF_TOKEN") == nil)
	// Output:
	// ***
	// {Token:***}
	// "***"
	// Authorization: Bearer hf_12345
	// hf-token: <nil>
	// HF_TOKEN is valid: false
}
