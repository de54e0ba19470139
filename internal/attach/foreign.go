package attach

import "strings"

// saysNotFound reads a plugin's message. Plugins report a link, an address or a
// namespace that is gone in words only: the CNI specification has no code for it,
// and containerd and CRI-O read the same words. This is the one place that looks
// at the text of a message, and it is another program's text.
func saysNotFound(message string) bool {
	message = strings.ToLower(message)
	for _, words := range []string{"not found", "no such file or directory", "no such network interface", "no such device", "does not exist"} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}
