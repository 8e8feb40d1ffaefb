module rollout/localstack/browser

go 1.26.0

toolchain go1.26.11

replace rollout => ../..

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	rollout v0.0.0
)

require github.com/go-json-experiment/json v1.27.2 // indirect
