package stack

// PolicySizes are what Check compares with IAM's limit.
var PolicySizes = Settings.policySizes
