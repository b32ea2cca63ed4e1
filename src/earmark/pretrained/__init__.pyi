from .network import Heard as Heard
from .network import NetworkFacts as NetworkFacts
from .network import PretrainedNetwork as PretrainedNetwork
from .network import open_network as open_network
