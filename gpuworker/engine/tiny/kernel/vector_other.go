package kernel

func haveVector() bool { return false }
